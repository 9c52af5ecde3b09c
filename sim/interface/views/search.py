"""Show a search: the best layouts, the reason for the best, and time against memory."""

from collections.abc import Iterator, Mapping, Sequence

from sim.analysis.search.answer import SearchResult, slower
from sim.analysis.search.choices.named import choices, not_tried, said
from sim.analysis.search.in_words import plan_text
from sim.analysis.search.layouts import Pruned, meshes
from sim.analysis.search.simplicity import ROOMY, complications, score
from sim.analysis.search.standings import Layout
from sim.config.readable import human_bytes, human_seconds
from sim.hardware.stack import Stack
from sim.interface.document.nodes import Document, Sentence, document, section, table
from sim.parallel.plan import Plan
from sim.results import likely
from sim.results.formatting import Cells
from sim.results.result import Result
from sim.uncertainty.order import faster, told_apart

_USUAL = ("tp", "pp", "dp", "microbatch")  # choices that every row shows
_FIGURES = ("step", "simulated", "against it", "MFU", "memory", "bubble", "$/1e6 tok", "adds")


def view(search: SearchResult) -> Document:
    """Show the recommended layout, then the fastest layouts with their added features and gains.
    Below are the reason, the Pareto front and the statistics of the search."""
    front = [
        (human_seconds(layout.step_time), human_bytes(layout.memory), plan_text(layout.plan))
        for layout in search.pareto
    ]
    price = search.space.topology.price
    return document(
        "",
        table(*_table(search)),
        section("", *_sure(search), Sentence(f"Against the recommended layout, {search.why}.")),
        *(Sentence(_beside(search, quicker), "warning") for quicker in search.beside),
        section(
            "Pareto front, time against memory (contention counts only for the best layouts):",
            table(front, ("simulated", "memory", "layout")),
        ),
        *(Sentence(words, "aside") for words in _left_out(search)),
        Sentence(_found(search), "aside"),
        Sentence(f"Dollars at {price}.", "aside") if price else None,
        line=_line(search),
    )


def _table(search: SearchResult) -> tuple[list[Cells], Cells]:
    """Return the rows of layouts and their head. Columns are the choices that differ from plain
    data parallelism, then figures. Layouts of equal time and memory share a row, which shows the
    simplest of these layouts."""
    first, rows = search.recommended, dict[tuple[float, float], Layout]()
    for layout in sorted(search.best, key=lambda layout: score(layout.plan)):
        rows.setdefault((float(f"{layout.step_time:.9g}"), layout.memory), layout)
    shown = [first, *(row for row in search.best if row in rows.values() and row != first)]
    words = [said(search.space, layout.plan) for layout in shown]
    plain = said(search.space, Plan(global_batch=search.space.global_batch, dp=1))
    names = [
        choice.name
        for choice in choices()
        if choice.name in _USUAL
        or any(
            chosen.get(choice.name, "") not in ("", _plain(choice.name, plain, search.space.stack))
            for chosen in words
        )
    ]
    cells = [
        (*(chosen.get(name, "") for name in names), *_figures(search, layout))
        for chosen, layout in zip(words, shown, strict=True)
    ]
    return cells, (*names, *_FIGURES)


_PLAIN = {"schedule": "1f1b", "layers": "even", "sequence_parallel": "no", "dp_replicate": "1"}


def _plain(name: str, plain: Mapping[str, str], stack: Stack) -> str:
    """Return the value of a choice that a table need not show: the stack's default, or the value
    in plain data parallelism."""
    given = {**_PLAIN, "dispatcher": stack.dispatcher, "context": stack.context}
    return given.get(name, plain.get(name, ""))


def _figures(search: SearchResult, layout: Layout) -> Cells:
    dollars, result, first = search.dollars(layout), layout.result, search.recommended
    added = [name for name in complications(layout.plan) if name not in complications(first.plan)]
    return (
        human_seconds(result.step_time_expected) if result else "",
        human_seconds(layout.step_time),
        "recommended" if layout == first else f"{layout.step_time / first.step_time - 1:+.1%}",
        f"{search.mfu(layout):.1%}", human_bytes(layout.memory),
        f"{result.bubble_fraction:.1%}" if result else "",
        "" if dollars is None else f"{dollars:.3g}",
        ", ".join(added),
    )  # fmt: skip


def _beside(search: SearchResult, quicker: Result) -> str:
    """Say how much faster than the recommended layout a scenario is, and in which choices the two
    differ."""
    plan, first = quicker.plan, search.recommended
    theirs = said(search.space, plan) if plan else {}
    ours = said(search.space, first.plan)
    differs = [f"{key} {word}" for key, word in theirs.items() if ours.get(key) != word]
    if quicker.inputs.stack != search.space.stack.name:
        differs.insert(0, f"software {quicker.inputs.stack}")
    if quicker.inputs.precision != search.space.precision:
        differs.insert(1, quicker.inputs.precision)
    gain = 1.0 - quicker.step_time / first.step_time
    return (
        f"scenario {quicker.scenario} is {gain:.0%} faster ({human_seconds(quicker.step_time)} "
        f"simulated): {', '.join(differs)}"
    )


def _left_out(search: SearchResult) -> Iterator[str]:
    """Say which values of choices were not tried. A value counts as tried if any layout or any mesh
    of the space has it."""
    sizes = meshes(search.space, Pruned())
    asked, lacking = not_tried(search.space, [*sizes, *(layout.plan for layout in search.layouts)])
    if lacking:
        yield f"Left out because {search.space.capabilities.name} lacks them: {_choices(lacking)}."
    if asked:
        yield f"Tried only if --only names it: {_choices(asked)}."


def _choices(words: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(f"{name}={','.join(values)}" for name, values in words.items())


def _sure(search: SearchResult) -> Iterator[Sentence]:
    """Yield the expected time of the recommended layout, and how it compares with faster
    layouts."""
    first = search.recommended.result
    if first is None or not search.results:
        return
    expected = human_seconds(first.step_time_expected)
    yield Sentence(
        f"The recommended layout should take {expected} {likely.bounds(first)}; "
        f"{likely.why(first.interval)}."
    )
    fastest, level, apart = search.results[0], first.interval["level"], first.interval["apart"]
    alike = sum(slower(fastest, other) < level for other in search.results)
    if alike > 1:
        chance = faster(fastest.step_time, first.step_time, apart)
        lead = f"; the fastest is truly faster with {chance:.0%} chance" * (fastest != first)
        most = ROOMY * search.space.topology.device.usable_memory
        roomy = " that leaves a tenth of the memory free" * (search.recommended.memory <= most)
        yield Sentence(
            f"Of {alike} or more layouts that cannot be told apart it is the simplest{roomy}: it "
            f"has the fewest features beyond data parallelism and ZeRO-1{lead}. "
            f"Judged by measured layouts, the faster of two is known ({100 * level:.0f} % sure) "
            f"if the other takes {told_apart(apart):.1%} longer."
        )


def _found(search: SearchResult) -> str:
    pruned, seconds, evaluated = search.pruned, search.search_seconds, len(search.layouts)
    decided = evaluated + pruned.slower
    stopped = "stopped: others may be faster; " * search.stopped
    return (
        f"{stopped}{evaluated} layouts evaluated in {seconds:.1f} s "
        f"({decided / seconds:.0f} decided a second) and the best played in "
        f"{search.wall_seconds - seconds:.1f} s; "
        f"{pruned.slower} skipped, which are neither faster nor smaller without contention; "
        f"{pruned.memory} do not fit in memory, {pruned.divisibility} do not divide the job"
    )


def _line(search: SearchResult) -> str:
    """Return the recommended layout, its step time and its memory in a line."""
    first = search.recommended
    offered = human_bytes(search.space.topology.device.usable_memory)
    expected = first.result.step_time_expected if first.result else first.step_time
    return (
        f"{plan_text(first.plan)}: {human_seconds(expected)} a step, "
        f"{search.mfu(first):.1%} MFU, {human_bytes(first.memory)} of {offered}; "
        f"{search.space.stack.name}"
    )
