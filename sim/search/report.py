"""A search's outcome for people: the best twenty, why the runner-up lost, time against memory."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sim.config.files import atomic_write
from sim.config.units import human_bytes, human_seconds
from sim.parallel.plan import Plan
from sim.search.search import Found, Layout, why

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_HEAD = ("rank", "tp", "pp", "dp", "mb", "schedule", "zero", "recompute", "seq.par.", "order",
         "step", "MFU", "memory", "bubble", "$/1e9 tok")  # fmt: skip


def text(found: Found) -> str:
    """The table, the reason, the Pareto front, and how it was found."""
    rows = [_HEAD, *(_cells(found, one, rank) for rank, one in enumerate(found.best, 1))]
    front = [("step", "memory", "layout")]
    front += [
        (human_seconds(one.step_time), human_bytes(one.memory), layout(one.plan))
        for one in found.pareto
    ]
    pruned, seconds = found.pruned, found.wall_seconds
    rate = len(found.layouts) / seconds
    return "\n".join(
        [
            *_aligned(rows),
            "step times marked * are the clock's, others by replay of the passes",
            "",
            f"Why the first: {why(found)}.",
            "",
            "Pareto front, time against memory:",
            *_aligned(front),
            "",
            f"{len(found.layouts)} layouts evaluated in {seconds:.1f} s ({rate:.0f} a second); "
            f"{pruned.memory} more do not fit in memory, {pruned.divisibility} sizes do not divide",
        ]
    )


def layout(plan: Plan) -> str:
    """A plan in one line.

    >>> layout(Plan(global_batch=8, tp=2, pp=2, dp=2, zero=1))
    'tp 2, pp 2, dp 2, microbatch 1, 1f1b, zero 1'
    """
    words = [f"tp {plan.tp}", f"pp {plan.pp}", f"dp {plan.dp}", f"microbatch {plan.microbatch}"]
    words += [_schedule(plan)] if plan.pp > 1 else []
    words += [f"zero {plan.zero}"] if plan.zero else []
    words += [f"{plan.recompute} recomputation"] if plan.recompute != "none" else []
    words += ["sequence parallel"] if plan.sequence_parallel else []
    return ", ".join(words)


def _schedule(plan: Plan) -> str:
    return f"interleaved {plan.interleave}" if plan.interleaved else plan.schedule


def _cells(found: Found, one: Layout, rank: int) -> tuple[str, ...]:
    plan, dollars = one.plan, found.cost(one).dollars
    return (
        str(rank), str(plan.tp), str(plan.pp), str(plan.dp), str(plan.microbatch),
        _schedule(plan), str(plan.zero), plan.recompute, "yes" if plan.sequence_parallel else "no",
        plan.order.replace("cp-", ""), human_seconds(one.step_time) + ("*" if one.result else " "),
        f"{found.mfu(one):.1%}", human_bytes(one.memory), f"{one.bubble:.1%}",
        "" if dollars is None else f"{dollars:,.0f}",
    )  # fmt: skip


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(f"{c:>{w}}" for c, w in zip(row, widths, strict=True)) for row in rows]


def plot(found: Found, path: Path) -> None:
    """Write `figure` as .png or .svg, whole or not at all."""
    drawn = figure(found)
    with atomic_write(path) as part:
        drawn.savefig(part, dpi=150, bbox_inches="tight")


def figure(found: Found) -> "Figure":
    """Every evaluated layout, time against memory, with the Pareto front."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(8, 5))
    axes = drawn.subplots()
    cloud = axes.scatter(
        [one.step_time for one in found.layouts],
        [one.memory / 2**30 for one in found.layouts],
        c=[one.plan.pp for one in found.layouts],
        s=10,
        cmap="viridis",
        label=f"{len(found.layouts)} layouts",
    )
    front = found.pareto
    times, sizes = [one.step_time for one in front], [one.memory / 2**30 for one in front]
    axes.step(times, sizes, where="post", color="tab:red", label="Pareto front")
    limit = found.space.topology.device.usable_memory / 2**30
    axes.axhline(limit, color="grey", linestyle=":", label="memory of a GPU")
    drawn.colorbar(cloud, label="pipeline stages")
    axes.set(xlabel="step time (s)", ylabel="memory of the fullest GPU (GiB)", xscale="log")
    axes.set_title(f"{found.space.topology.gpus} GPUs, {found.space.global_batch} sequences a step")
    axes.legend()
    return drawn


def frame(found: Found) -> "pd.DataFrame":
    """The best layouts as a table, one row each."""
    import pandas as pd

    rows = [_cells(found, one, rank) for rank, one in enumerate(found.best, 1)]
    return pd.DataFrame(rows, columns=_HEAD).set_index("rank")
