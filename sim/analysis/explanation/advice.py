"""Changes of a script that make its step shorter, each played alone and with the others."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import prod
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A `change` of a script `at` a line, and the `line` that it makes cheaper. `result` is the
    step of the changed script, which trains `samples` times as many samples. `changes` are all its
    changes, in the order in which its recording is edited."""

    line: str
    at: str = ""
    change: str
    why: str
    samples: float
    result: Result
    changes: tuple[Suggestion, ...] = ()

    @property
    def step_time(self) -> float:
        return self.result.step_time

    @property
    def each(self) -> float:
        """Seconds in which the changed script trains the samples of a step of the original
        script."""
        return self.step_time / self.samples

    @property
    def memory(self) -> float:
        """Bytes of the fullest GPU."""
        return self.result.memory_per_gpu["total"]

    def gain(self, step: float) -> float:
        """Return the share of a step (s) that is saved, for the same samples."""
        return 1.0 - self.each / step


def advised(setup: Setup, result: Result, suggestions: Sequence[Suggestion]) -> Iterator[Advice]:
    """Yield the changes that fit into memory and make the step shorter (or make it fit), the best
    first. If several changes help together, the script with all of these changes comes first."""
    now = Advice(line="", change="", why="", samples=1.0, result=result)
    rows = so_far((change, _played((change,), setup)) for change in suggestions)
    made = [
        (change, advice)
        for change, advice in counted(rows, total=len(suggestions), unit="change")
        if advice is not None and _helps(advice, now)
    ]
    made.sort(key=lambda pair: pair[1].each)
    best = list(_best_of_each(made))
    if len(best) > 1:
        together = _together(setup, now, [change for change, _ in best])
        if len(together.changes) > 1:
            yield together
    yield from (advice for _, advice in best)


def _played(changes: Sequence[Suggestion], setup: Setup) -> Advice | None:
    """Play the step of a script with those of the `changes` that can be made one after the other.
    Returns None if none of them can be made."""
    made = []
    for change in changes:
        with suppress(InputError):
            setup = change.made(setup)
            made.append(change)
    if not made:
        return None
    try:
        result = cast(Result, kind.answer(setup))
    except InputError:
        return None
    samples = prod(change.samples for change in made)
    return Advice(**_said(made), samples=samples, result=result, changes=tuple(made))


def _said(changes: Sequence[Suggestion]) -> dict[str, str]:
    """Return the texts of an advice; several changes are listed in a single text."""
    one, *others = changes
    if not others:
        return {key: getattr(one, key) for key in ("line", "at", "change", "why")}
    names = (f"{own.change} ({own.at})" if own.at else own.change for own in changes)
    return {"line": "", "change": f"all of this: {'; '.join(names)}", "why": ""}


def _helps(then: Advice, now: Advice) -> bool:
    """Return whether a step saves time, or fits where the step `now` does not. A step that takes
    more memory must leave some memory free."""
    held, before, capacity = then.memory, now.memory, then.result.capacity
    room = not capacity or held <= _ROOM * capacity
    fits = then.result.fits is not False and (held <= before or room)  # unknown memory is enough
    return fits and (now.result.fits is False or then.gain(now.each) > _LEAST)


def _best_of_each(
    made: Sequence[tuple[Suggestion, Advice]],
) -> Iterator[tuple[Suggestion, Advice]]:
    """Yield the best of the changes that have the same reason at the same line."""
    seen = set()
    for suggestion, advice in made:
        if (key := (advice.line, advice.why)) not in seen:
            seen.add(key)
            yield suggestion, advice


def _together(setup: Setup, now: Advice, best: Sequence[Suggestion]) -> Advice:
    """Return the step with all changes that help beside one another, or the step `now` if no change
    helps. A change is made after the changes that are kept so far. If it does not help there, these
    changes may have hidden what it edits, as compiling hides kernels; so it is also made before
    them. Changes that were left out are tried again as long as another change is kept."""
    before = None
    while now is not before:
        before = now
        for change in counted(best, total=len(best), unit="change"):
            if change in now.changes:
                continue
            for changes in dict.fromkeys(((*now.changes, change), (change, *now.changes))):
                then = _played(changes, setup)
                if then is not None and _helps(then, now):
                    now = then
                    break
    return now
