"""A search: the best layouts, why the runner-up lost, time against memory."""

from collections.abc import Iterator, Sequence

from sim.analysis.search.answer import SearchResult, slower
from sim.analysis.search.in_words import CHOICES, choices, plan_text
from sim.analysis.search.standings import Layout
from sim.config.units import human_bytes, human_seconds
from sim.interface.document.nodes import Document, Sentence, document, section, table
from sim.results import likely
from sim.results.formatting import Cells
from sim.uncertainty.intervals import told_apart

_HEAD = ("rank", *CHOICES, "step", "simulated", "MFU", "memory", "bubble", "$/1e6 tok")


def view(search: SearchResult) -> Document:
    """The table, the reason, the Pareto front, and how it was found."""
    rows = [_cells(search, layout, rank) for rank, layout in enumerate(search.best, 1)]
    front = [
        (human_seconds(layout.step_time), human_bytes(layout.memory), plan_text(layout.plan))
        for layout in search.pareto
    ]
    price = search.space.topology.price
    return document(
        "",
        table(*_without_experts(rows)),
        section("", Sentence(f"Why the first: {search.why}."), *_sure(search)),
        section(
            "Pareto front, time against memory (without contention where not among the best):",
            table(front, ("step", "memory", "layout")),
        ),
        Sentence(_found(search), "aside"),
        Sentence(f"Dollars at {price}.", "aside") if price else None,
        line=_line(search),
    )


def _cells(search: SearchResult, layout: Layout, rank: int) -> Cells:
    dollars, result = search.dollars(layout), layout.result
    return (
        str(rank), *choices(layout.plan),
        human_seconds(result.step_time_expected) if result else "",
        human_seconds(layout.step_time), f"{search.mfu(layout):.1%}", human_bytes(layout.memory),
        f"{result.bubble_fraction:.1%}" if result else "",
        "" if dollars is None else f"{dollars:.3g}",
    )  # fmt: skip


def _without_experts(rows: Sequence[Cells]) -> tuple[list[Cells], Cells]:
    """The table without the sizes of expert parallelism where no layout has any."""
    place = _HEAD.index("ep")
    if any(row[place] != "1" for row in rows):
        return list(rows), _HEAD
    kept = [(*row[:place], *row[place + 1 :]) for row in (_HEAD, *rows)]
    return kept[1:], kept[0]


def _sure(search: SearchResult) -> Iterator[Sentence]:
    """The expected time of the first layout, and the layouts that may be faster."""
    if not search.results:
        return
    first, *others = search.results
    expected = human_seconds(first.step_time_expected)
    yield Sentence(
        f"Expected of the first: {expected} {likely.bounds(first)}; {likely.why(first)}."
    )
    alike = sum(slower(first, other) < first.interval["level"] for other in others)
    if alike:
        which = "2 cannot" if alike == 1 else f"2 to {alike + 1} cannot"
        yield Sentence(
            f"Layout{'s' * (alike > 1)} {which} be told apart from it: by measured layouts of a "
            f"job the faster of two is sure ({100 * first.interval['level']:.0f} %) where the "
            f"other takes {told_apart(first.interval['apart']):.1%} longer."
        )


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


def _line(search: SearchResult) -> str:
    """The best layout, its step and its memory."""
    first = search.best[0]
    offered = human_bytes(search.space.topology.device.usable_memory)
    expected = first.result.step_time_expected if first.result else first.step_time
    return (
        f"{plan_text(first.plan)}: {human_seconds(expected)} a step, "
        f"{search.mfu(first):.1%} MFU, {human_bytes(first.memory)} of a GPU's {offered}"
    )
