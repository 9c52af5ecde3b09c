"""A search as text: the best layouts, why the runner-up lost, time against memory."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sim.analysis.search.answer import SearchResult, slower
from sim.analysis.search.choices.choice import written
from sim.analysis.search.standings import Layout
from sim.config.units import human_bytes, human_seconds
from sim.parallel.plan import Plan
from sim.results import likely
from sim.results.differences import differences, told
from sim.results.tables import Cells, preformatted
from sim.uncertainty.intervals import told_apart

if TYPE_CHECKING:
    import pandas as pd

_HEAD = ("rank", "tp", "cp", "pp", "dp", "ep", "mb", "schedule", "zero", "recompute", "seq.par.",
         "order", "step", "MFU", "memory", "bubble", "$/1e6 tok")  # fmt: skip


def text(search: SearchResult) -> str:
    """The table, the reason, the Pareto front, and how it was found."""
    rows = _without_experts([_HEAD, *_rows(search)])
    front = [("step", "memory", "layout")]
    front += [
        (human_seconds(layout.step_time), human_bytes(layout.memory), plan_text(layout.plan))
        for layout in search.pareto
    ]
    return "\n".join(
        [
            *_aligned(rows),
            "",
            f"Why the first: {why(search)}.",
            *_sure(search),
            "",
            "Pareto front, time against memory (without contention where not among the best):",
            *_aligned(front),
            "",
            _found(search),
            *_price(search),
        ]
    )


def html(search: SearchResult) -> str:
    """The same page for a notebook."""
    return preformatted(text(search))


def _without_experts(rows: Sequence[Cells]) -> list[Cells]:
    """The table without the sizes of expert parallelism where no layout has any."""
    place = _HEAD.index("ep")
    if any(row[place] not in ("ep", "1") for row in rows):
        return list(rows)
    return [(*row[:place], *row[place + 1 :]) for row in rows]


def _price(search: SearchResult) -> Iterator[str]:
    if search.space.topology.price:
        yield f"Dollars at {search.space.topology.price}."


def _found(search: SearchResult) -> str:
    pruned, seconds, evaluated = search.pruned, search.search_seconds, len(search.layouts)
    decided = evaluated + pruned.slower
    stopped = "stopped: others may be faster; " * search.stopped
    return (
        f"{stopped}{evaluated} layouts evaluated and {pruned.slower} left out that cannot be "
        f"faster or smaller where nothing contends, in {seconds:.1f} s "
        f"({decided / seconds:.0f} a second); "
        f"the best played in {search.wall_seconds - seconds:.1f} s; "
        f"{pruned.memory} do not fit in memory, {pruned.divisibility} sizes do not divide"
    )


def why(search: SearchResult) -> str:
    """Why the runner-up lost: what it spends more on, and what less, than the best."""
    results = [layout.result for layout in search.best if layout.result is not None]
    if len(results) < 2:
        return "there is no other layout to compare with"
    best, second = results[:2]
    more = differences(best.breakdown, second.breakdown)
    words = list(told(more, 1e-4 * best.step_time))
    lost = second.step_time - best.step_time
    return f"the runner-up takes {lost:.3f} s ({lost / best.step_time:.2%}) longer: " + ", ".join(
        words or ["the same in every cause"]
    )


def _sure(search: SearchResult) -> Iterator[str]:
    """What a run of the first would show, and which layouts may as well be faster."""
    results = [layout.result for layout in search.best if layout.result is not None]
    if not results:
        return
    first, apart = results[0], results[0].interval["apart"]
    expected = human_seconds(first.step_time_expected)
    yield f"Expected of the first: {expected} {likely.bounds(first)}; {likely.why(first)}."
    alike = sum(slower(first, other) < first.interval["level"] for other in results[1:])
    if alike:
        which = "2 cannot" if alike == 1 else f"2 to {alike + 1} cannot"
        yield (
            f"Layout{'s' * (alike > 1)} {which} be told apart from it: by measured layouts of a "
            f"job the faster of two is sure ({100 * first.interval['level']:.0f} %) where the "
            f"other takes {told_apart(apart):.1%} longer."
        )


def in_a_line(search: SearchResult) -> str:
    """The best layout, its step and its memory."""
    first = search.best[0]
    offered = human_bytes(search.space.topology.device.usable_memory)
    return (
        f"{plan_text(first.plan)}: {human_seconds(first.step_time)} a step, "
        f"{search.mfu(first):.1%} MFU, {human_bytes(first.memory)} of a GPU's {offered}"
    )


def plan_text(plan: Plan) -> str:
    """A plan in one line.

    >>> plan_text(Plan(global_batch=8, tp=2, pp=2, dp=2, zero=1))
    'tp 2, pp 2, dp 2, microbatch 1, 1f1b, zero 1'
    """
    words = [f"tp {plan.tp}"] + ([f"cp {_context(plan)}"] if plan.cp > 1 else [])
    words += [f"{axis} {size}" for axis, size in plan.axes.items() if size > 1]
    words += [f"ep {_experts(plan)}"] if _experts(plan) != "1" else []
    words += [f"pp {plan.pp}", f"dp {_replicas(plan)}", f"microbatch {plan.microbatch}"]
    words += [_schedule(plan)] if plan.pp > 1 else []
    words += [f"{plan.dispatcher} dispatch"] if plan.dispatcher else []
    words += ["overlapped experts"] if plan.overlap_experts else []
    words += ["balanced layers"] if plan.layers is not None else []
    words += [f"zero {plan.zero}"] if plan.zero else []
    kept = plan.reshard in (False, "near")
    words += ["weights kept" + " near" * (plan.reshard == "near")] if kept else []
    words += ["gradients reduced once"] if plan.no_sync else []
    words += ["offload"] if plan.offload else []
    words += [f"{written(plan.recompute)} recomputation"] if plan.recompute != "none" else []
    words += ["sequence parallel"] if plan.sequence_parallel else []
    words += [plan.order] if plan.order != Plan(global_batch=1).order else []
    return ", ".join(words)


def _schedule(plan: Plan) -> str:
    if plan.pp == 1:
        return ""
    return f"{plan.pipeline} {plan.interleave}" if plan.interleave > 1 else plan.pipeline


def _context(plan: Plan) -> str:
    """The ranks of a sequence, and how they reach each other's keys unless as the stack does."""
    return str(plan.cp) if plan.context is None or plan.cp == 1 else f"{plan.cp} {plan.context}"


def _experts(plan: Plan) -> str:
    """Groups of ranks that share the experts x ranks that share each."""
    return f"{plan.ep} x {plan.etp}" if plan.etp > 1 else str(plan.ep)


def _zero(plan: Plan) -> str:
    """The stage, and whether weights are kept, gradients wait, or anything lies on the host."""
    whole = plan.reshard in (False, "near")
    ways = {"weights kept": whole, "reduced once": plan.no_sync, "offloaded": plan.offload}
    return ", ".join([str(plan.zero), *(name for name, asked in ways.items() if asked)])


def _replicas(plan: Plan) -> str:
    """Of hybrid sharding groups x ranks of a group."""
    return f"{plan.dp_replicate} x {plan.dp}" if plan.dp_replicate > 1 else str(plan.dp)


def _rows(search: SearchResult) -> Iterator[Cells]:
    for rank, layout in enumerate(search.best, 1):
        yield _cells(search, layout, rank)


def _cells(search: SearchResult, layout: Layout, rank: int) -> Cells:
    plan, dollars = layout.plan, search.dollars(layout)
    bubble = f"{layout.result.bubble_fraction:.1%}" if layout.result else ""
    return (
        str(rank), str(plan.tp), _context(plan), str(plan.pp), _replicas(plan), _experts(plan),
        str(plan.microbatch),
        _schedule(plan), _zero(plan), written(plan.recompute),
        "yes" if plan.sequence_parallel else "no",
        plan.order if plan.pp > 1 else "", human_seconds(layout.step_time),
        f"{search.mfu(layout):.1%}", human_bytes(layout.memory), bubble,
        "" if dollars is None else f"{dollars:.3g}",
    )  # fmt: skip


def _aligned(rows: Sequence[Cells]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(f"{c:>{w}}" for c, w in zip(row, widths, strict=True)) for row in rows]


def frame(search: SearchResult) -> "pd.DataFrame":
    """The best layouts as a table, one row each."""
    import pandas as pd

    return pd.DataFrame(list(_rows(search)), columns=_HEAD).set_index("rank")
