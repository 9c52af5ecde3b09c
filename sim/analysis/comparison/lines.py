"""Two recordings of a script, before and after a change: which of its lines cost more?

Lines are recognised by their text and order, so a line that moves is still the same line. Where
recordings have no texts, lines are recognised by their places (file and number).
"""

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from os import PathLike
from typing import Any, cast

from sim import kind, questions
from sim.config.counting import whole
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.kind import Setup
from sim.results.answer import Answer, Inputs
from sim.results.by_line import ByLine, Line
from sim.results.differences import differences
from sim.results.formatting import count
from sim.results.result import Result
from sim.scenario.scenario import BaseScenario
from sim.scenario.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class LineCosts:
    """The costs of a line in a step. Its kernels take device `seconds`, its collectives and
    messages have `sent` bytes, and it `holds` bytes at the fullest moment."""

    seconds: float = 0.0
    sent: float = 0.0
    holds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LineChange:
    """A line with its places before and after ("" where the line does not exist), and its costs."""

    before: str
    after: str
    text: str
    was: LineCosts
    now: LineCosts

    @property
    def seconds(self) -> float:
        """Device seconds that the line costs more after the change."""
        return self.now.seconds - self.was.seconds

    @property
    def moved(self) -> bool:
        """Whether any cost of the line differs."""
        return self.was != self.now


@dataclass(frozen=True, slots=True, kw_only=True)
class LineDifferences(Answer):
    """The simulated steps of two recordings on one cluster, and the `lines` that differ in cost,
    the largest difference of seconds first. `causes` are the differences of the step's seconds by
    cause. Seconds of lines are device seconds, which may overlap with device seconds of other
    lines. `unlike` has further facts in which the two steps differ, before and after: samples,
    GPUs, software."""

    view = "sim.interface.views.comparison:lines"
    picture = "sim.interface.plots.comparison:lines"
    unwritten = ("results", "lines", "recorded")
    derived = (
        "step_times", "slower", "unlike", "memory", "causes", "lines=changed", "inputs", "notes",
    )  # fmt: skip
    frame_rows = "changed"

    results: tuple[Result, Result]
    lines: tuple[LineChange, ...]
    recorded: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {})

    @property
    def step_times(self) -> list[float]:
        """Simulated steps (s), before and after."""
        return [result.step_time for result in self.results]

    @property
    def slower(self) -> float:
        """The share by which the same number of samples takes longer (+) or shorter (-) after the
        change. If the numbers of samples are unknown, it is the share by which a step takes
        longer."""
        before, after = self.step_times
        samples = [result.inputs.batch for result in self.results]
        return after / before * (samples[0] / samples[1] if all(samples) else 1.0) - 1.0

    @property
    def unlike(self) -> dict[str, list[str]]:
        """Facts other than lines in which the two steps differ, before and after."""
        sides = zip(self.results, self.recorded, strict=True)
        before, after = (dict(_facts(*side)) for side in sides)
        pairs = {name: [before[name], after.get(name, "")] for name in before}
        return {
            name: [fact or _UNKNOWN for fact in pair]
            for name, pair in pairs.items()
            if pair[0] != pair[1]
        }

    @property
    def incomparable(self) -> dict[str, list[str]]:
        """The `unlike` facts that make seconds incomparable. A difference in samples is one of them
        only if a number is unknown."""
        return {
            name: pair
            for name, pair in self.unlike.items()
            if name in _SCALES or (name == SAMPLES and _UNKNOWN in pair)
        }

    @property
    def memory(self) -> list[float]:
        """Bytes of the fullest GPU, before and after."""
        return [result.memory_per_gpu["total"] for result in self.results]

    @property
    def causes(self) -> dict[str, float]:
        """Seconds of the step by cause: how many more (+) or fewer (-) after the change."""
        before, after = (result.breakdown for result in self.results)
        return differences(before, after)

    @property
    def changed(self) -> list[dict[str, Any]]:
        """Lines that differ: their places, texts and costs."""
        return [
            {
                "before": line.before,
                "after": line.after,
                "text": line.text,
                **{
                    f"{key}_{when}": getattr(costs, key)
                    for key in ("seconds", "sent", "holds")
                    for when, costs in (("before", line.was), ("after", line.now))
                },
            }
            for line in self.lines
        ]

    @property
    def inputs(self) -> dict[str, Inputs]:
        before, after = (result.inputs for result in self.results)
        return {"before": before, "after": after}

    @property
    def notes(self) -> list[str]:
        """Remarks on both steps."""
        return list(dict.fromkeys(note for result in self.results for note in result.remarks))

    @property
    def fits(self) -> bool | None:
        return self.results[1].fits

    @property
    def title(self) -> str:
        before, after = (result.scenario for result in self.results)
        return f"{before} -> {after}"


SAMPLES, _UNKNOWN = "samples a step", "unknown"
# Seconds of two steps are comparable only if these facts are equal on both sides.
_SCALES = ("tokens a sample", "GPUs", "device")


def _facts(result: Result, recorded: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the facts of a step other than its lines; "" where a fact is unknown."""
    inputs = result.inputs
    yield SAMPLES, count(inputs.batch) if inputs.batch else ""
    yield "tokens a sample", f"{inputs.tokens:,}" if inputs.tokens else ""
    yield "GPUs", f"{inputs.gpus:,}"
    yield "device", inputs.device
    yield "parameters", f"{result.parameters:,}"
    yield "precision", inputs.precision
    yield "software", inputs.stack
    yield from recorded.items()


@whole("comparing lines")
def diff(
    before: str | PathLike[str] | BaseScenario,
    after: str | PathLike[str] | BaseScenario,
    settings: Settings = (),
) -> LineDifferences:
    """Compare a recording with an earlier recording of the same script, on a cluster that
    `settings` name. Raises `InputError` for a scenario without lines."""
    setups = [kind.set_up(kind.load(name, settings)) for name in (before, after)]
    sides = [_by_line(setup) for setup in setups]
    first, second = (cast(Result, kind.answer(setup)) for setup in setups)
    changes = [change for change in _changes(*sides) if change.moved]
    changes.sort(key=lambda change: (-abs(change.seconds), change.after, change.before))
    recorded = (sides[0].recorded, sides[1].recorded)
    return LineDifferences(results=(first, second), lines=tuple(changes), recorded=recorded)


def _by_line(setup: Setup) -> ByLine:
    found = questions.by_line(setup)
    if found is None:
        raise InputError(setup.name, "has no lines of a script", "compare it with `sim compare`")
    return found


def _changes(before: ByLine, after: ByLine) -> Iterator[LineChange]:
    was, now = _costs(before), _costs(after)
    texts = _texts(before), _texts(after)
    pairs = dict(_pairs(_ordered(was, texts[0]), _ordered(now, texts[1])))
    for place in was:
        then = pairs.get(place, "")
        yield LineChange(
            before=place,
            after=then,
            text=texts[0].get(place, ""),
            was=was[place],
            now=now.get(then, LineCosts()),
        )
    matched = set(pairs.values())
    for place in now.keys() - matched:
        text = texts[1].get(place, "")
        yield LineChange(before="", after=place, text=text, was=LineCosts(), now=now[place])


def _costs(side: ByLine) -> dict[str, LineCosts]:
    held = side.fullest.lines if side.fullest else {}
    lines = {line.line: line for line in side.lines}
    nothing = Line(line="", seconds={})
    return {
        place: LineCosts(
            seconds=lines.get(place, nothing).total,
            sent=lines.get(place, nothing).sent,
            holds=held.get(place, 0.0),
        )
        for place in {**lines, **held}
    }


def _texts(side: ByLine) -> dict[str, str]:
    return {line.line: line.text for line in side.lines if line.text}


_Ordered = Sequence[tuple[str, str]]  # places with their texts


def _ordered(places: Mapping[str, LineCosts], texts: Mapping[str, str]) -> _Ordered:
    """Return the places by file and line, each with its text (the place if the text is unknown)."""

    def key(place: str) -> tuple[str, int]:
        file, _, number = place.rpartition(":")
        return file, int(number) if number.isdigit() else 0

    return [(place, texts.get(place, place)) for place in sorted(places, key=key)]


def _pairs(before: _Ordered, after: _Ordered) -> Iterator[tuple[str, str]]:
    """Yield the places of a line before and after. Neighbouring lines that were replaced by equally
    many lines are paired in order, since their text was probably edited."""
    old, new = [text for _, text in before], [text for _, text in after]
    for kind_, i, end, j, last in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind_ == "equal" or (kind_ == "replace" and end - i == last - j):
            yield from zip(
                (place for place, _ in before[i:end]),
                (place for place, _ in after[j:last]),
                strict=True,
            )
