"""Changes of a script that make its step shorter, each played alone and with the others."""

from collections.abc import Iterator, Sequence
from typing import cast

from sim import kind
from sim.config.counting import counted
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.stopping import so_far
from sim.kind import Setup
from sim.results.by_line import Suggestion
from sim.results.result import Result

_LEAST = 2e-3  # share of the step that a change must save
# The share of the device's memory that a step may fill after a change that takes more memory. The
# simulated allocator first runs steps of the unchanged script. It then has up to 10 % less memory
# reserved than after steps of the changed script.
_ROOM = 0.9
_SEVERAL = "the changes below together, without those that save nothing beside the others"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A `change` of a script `at` a line, and the `line` that it makes cheaper. `result` is the
    step of the changed script, which trains `samples` times as many samples."""

    line: str
    at: str = ""
    change: str
    why: str
    samples: float
    result: Result

    @property
    def step_time(self) -> float:
        return self.result.step_time

    @property
    def each(self) -> float:
        """Seconds in which the changed script trains the samples of a step of the original
        script."""
        return self.step_time / self.samples

    def gain(self, step: float) -> float:
        """Return the share of a step (s) that is saved, for the same samples."""
        return 1.0 - self.each / step


def advised(setup: Setup, result: Result, suggestions: Sequence[Suggestion]) -> Iterator[Advice]:
    """Yield the changes that fit into memory and make the step shorter (or make it fit), the best
    first. If several changes help together, the script with all of these changes comes first."""
    rows = so_far((change, _played(change, setup)) for change in suggestions)
    made = [
        (change, advice)
        for change, advice in counted(rows, total=len(suggestions), unit="change")
        if advice is not None and _helps(advice, result)
    ]
    made.sort(key=lambda pair: pair[1].each)
    best = list(_best_of_each(made))
    if len(best) > 1 and (together := _together(setup, result, best)) is not None:
        yield together
    yield from (advice for _, advice in best)


def _played(suggestion: Suggestion, setup: Setup) -> Advice | None:
    """Play the changed step; None for a change that cannot be made."""
    try:
        result = cast(Result, kind.answer(suggestion.made(setup)))
    except InputError:
        return None
    return _advice(suggestion, result, suggestion.samples)


def _advice(suggestion: Suggestion, result: Result, samples: float) -> Advice:
    said = {key: getattr(suggestion, key) for key in ("line", "at", "change", "why")}
    return Advice(**said, samples=samples, result=result)


def _helps(advice: Advice, result: Result) -> bool:
    """Return whether a change saves time or makes a script fit. A change that takes more memory
    must leave some memory free."""
    then, now = advice.result, result
    more = then.memory_per_gpu["total"] - now.memory_per_gpu["total"]
    room = not then.capacity or then.memory_per_gpu["total"] <= _ROOM * then.capacity
    fits = then.fits is not False and (more <= 0 or room)  # unknown memory counts as enough
    return fits and (now.fits is False or advice.gain(now.step_time) > _LEAST)


def _best_of_each(
    made: Sequence[tuple[Suggestion, Advice]],
) -> Iterator[tuple[Suggestion, Advice]]:
    """Yield the best of the changes that have the same reason at the same line."""
    seen = set()
    for suggestion, advice in made:
        if (key := (advice.line, advice.why)) not in seen:
            seen.add(key)
            yield suggestion, advice


def _together(
    setup: Setup, result: Result, best: Sequence[tuple[Suggestion, Advice]]
) -> Advice | None:
    """Make the changes one after the other, and keep each change that helps in addition to the
    earlier changes. Returns None if fewer than two changes are kept."""
    now, played, samples, taken = setup, result, 1.0, []
    for suggestion, _ in counted(best, total=len(best), unit="change"):
        try:
            then = suggestion.made(now)
            found = cast(Result, kind.answer(then))
        except InputError:
            continue
        times = suggestion.samples
        tried = _advice(suggestion, found, times)
        if _helps(tried, played):
            now, played, samples = then, found, samples * times
            taken.append(suggestion)
    if len(taken) < 2:
        return None
    return Advice(line="", change=_SEVERAL, why="", samples=samples, result=played)
