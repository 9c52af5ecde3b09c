"""A search as text: the best twenty layouts, why the runner-up lost, time against memory."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sim.config.units import human_bytes, human_seconds
from sim.parallel.plan import Plan
from sim.results.tables import Cells
from sim.search.search import Found, Layout, why

if TYPE_CHECKING:
    import pandas as pd

_HEAD = ("rank", "tp", "pp", "dp", "mb", "schedule", "zero", "recompute", "seq.par.", "order",
         "step", "MFU", "memory", "bubble", "$/1e9 tok")  # fmt: skip


def text(search: Found) -> str:
    """The table, the reason, the Pareto front, and how it was found."""
    rows = [_HEAD, *_rows(search)]
    front = [("step", "memory", "layout")]
    front += [
        (human_seconds(layout.step_time), human_bytes(layout.memory), plan_text(layout.plan))
        for layout in search.pareto
    ]
    pruned, seconds = search.pruned, search.wall_seconds
    rate = len(search.layouts) / seconds
    return "\n".join(
        [
            *_aligned(rows),
            "step times marked * are the clock's, others by replay of the passes",
            "",
            f"Why the first: {why(search)}.",
            "",
            "Pareto front, time against memory:",
            *_aligned(front),
            "",
            f"{len(search.layouts)} layouts evaluated in {seconds:.1f} s ({rate:.0f} a second); "
            f"{pruned.memory} more do not fit in memory, {pruned.divisibility} sizes do not divide",
        ]
    )


def plan_text(plan: Plan) -> str:
    """A plan in one line.

    >>> plan_text(Plan(global_batch=8, tp=2, pp=2, dp=2, zero=1))
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


def _rows(search: Found) -> Iterator[Cells]:
    for rank, layout in enumerate(search.best, 1):
        yield _cells(search, layout, rank)


def _cells(search: Found, layout: Layout, rank: int) -> Cells:
    plan, dollars = layout.plan, search.cost(layout).dollars
    return (
        str(rank), str(plan.tp), str(plan.pp), str(plan.dp), str(plan.microbatch),
        _schedule(plan), str(plan.zero), plan.recompute, "yes" if plan.sequence_parallel else "no",
        plan.order.replace("cp-", ""),
        human_seconds(layout.step_time) + ("*" if layout.result else " "),
        f"{search.mfu(layout):.1%}", human_bytes(layout.memory), f"{layout.bubble:.1%}",
        "" if dollars is None else f"{dollars:,.0f}",
    )  # fmt: skip


def _aligned(rows: Sequence[Cells]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(f"{c:>{w}}" for c, w in zip(row, widths, strict=True)) for row in rows]


def frame(search: Found) -> "pd.DataFrame":
    """The best layouts as a table, one row each."""
    import pandas as pd

    return pd.DataFrame(list(_rows(search)), columns=_HEAD).set_index("rank")
