"""Where a job can be moved to, each move played, the best first: other worlds, batches and
shardings of a recording, other divisions of the GPUs of a loop.

Moves that know what they take at `least` (GPU-seconds of a sample) are played from the least on,
and not at all where others are far better.

Where a play draws random numbers, the moves near the best are played with further seeds, the same
ones for all, so that two moves differ by more than chance where their difference does.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from itertools import islice
from math import inf
from os import PathLike
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from sim import kind
from sim.analysis.samples.pairs import Floats, half, paired
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.progress import counted, part, whole
from sim.config.stopping import so_far
from sim.kind import Setup
from sim.results.answer import Answer, Inputs, JobAnswer
from sim.results.by_line import Suggestion
from sim.scenario.scenario import BaseScenario
from sim.scenario.settings import Settings, settings_of

if TYPE_CHECKING:
    import pandas as pd

_SEEDS = 5  # with which moves are played that are near the best
_NEAR, _MOST = 1.15, 3  # so much slower at most; so many, and all that would be ahead of them
_ESTIMATED = 0.9  # of what moves know, which is right to some percent
_FAR = 1.05  # times the best's step: moves that take longer at least are not played


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What is `moved`, and the step there; `place` is that among the suggestions, of which the
    simplest come first, `times` are its seconds with each seed that was played."""

    moved: str
    result: JobAnswer
    place: int = 0
    times: tuple[float, ...] = ()
    made: Callable[[Setup], Setup] | None = field(default=None, repr=False, compare=False)

    @property
    def gpus(self) -> int:
        return self.result.inputs.gpus

    @property
    def samples(self) -> float:
        """Samples of a step; 0 where they are not known."""
        return float(self.result.get("samples") or self.result.inputs.batch)

    @property
    def step_time(self) -> float:
        """Seconds of a step, in the mean of the seeds."""
        return fmean(self.times)

    @property
    def within(self) -> float | None:
        """Half of the 90 % interval of the mean's relative error; None without several seeds."""
        several = len(self.times) > 1
        return half(np.array(self.times)) / self.step_time if several else None

    def alike(self, other: "Move") -> bool:
        """Whether chance explains the difference to another, played with the same seeds."""
        if min(len(self.times), len(other.times)) < 2:
            return self is other
        found = paired(self._each, other._each)
        return found is not None and found.alike

    @property
    def _each(self) -> Floats:
        """GPU-seconds of a sample, with each seed."""
        return np.array(self.times) * self.gpus / (self.samples or 1.0)

    @property
    def memory(self) -> float:
        """Bytes of the fullest GPU."""
        return float(self.result.get("memory_per_gpu")["total"])

    @property
    def cost(self) -> float:
        """GPU-seconds of a sample."""
        return 1.0 / self.rate

    @property
    def rate(self) -> float:
        """Samples a second and GPU; steps a second and GPU where samples are not known."""
        return (self.samples or 1.0) / self.step_time / self.gpus

    @property
    def row(self) -> dict[str, Any]:
        """It as numbers."""
        return {
            "moved": self.moved, "gpus": self.gpus, "batch": self.samples,
            "step_time": self.step_time, "samples_per_second": self.rate * self.gpus,
            "samples_per_second_per_gpu": self.rate, "within": self.within,
            "memory": self.memory, "fits": self.result.fits,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves(Answer):
    """What a job can be moved to, those that fit first, then by samples a second and GPU. `result`
    is the job as it is, where it is drawn a `brief` play of it. `refused`
    are moves that cannot be played, `slower` those that were not, as they are slower, with the
    reason. `recommended` is the simplest of those that cannot be told apart from the best."""

    view = "sim.interface.views.explanation:moves"
    picture = "sim.interface.plots.explanation:moves"
    unwritten = ("result", "moves", "setup")
    derived: ClassVar[Mapping[str, str]] = {
        "moves": "rows", "recommended": "recommendation", "layouts": "layouts",
        "inputs": "inputs",
    }  # fmt: skip

    result: JobAnswer
    moves: tuple[Move, ...]
    refused: tuple[tuple[str, str], ...]
    slower: tuple[tuple[str, str], ...] = ()
    setup: Setup | None = field(default=None, repr=False, compare=False)

    def emitted(self, form: str) -> tuple[str, list[str]]:
        """How a framework is told to start the recommended move, and what it is not told. Raises
        `InputError`."""
        from sim.interface.frameworks.loop_writing import written

        best = self.recommended
        if best is None or best.made is None or self.setup is None:
            raise InputError("sim plan", "no move fits", "take more GPUs")
        made = best.made(self.setup)
        return written(form, made, made.machine.topology.gpus_per_node)

    @property
    def recommended(self) -> Move | None:
        if not self.moves or self.moves[0].result.fits is False:
            return None
        alike = [move for move in self.moves if move.alike(self.moves[0])]
        return min(alike, key=lambda move: move.place)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The moves, the best first."""
        return [move.row for move in self.moves]

    @property
    def recommendation(self) -> dict[str, Any] | None:
        """The recommended move as numbers."""
        best = self.recommended
        return None if best is None else best.row

    @property
    def layouts(self) -> list[dict[str, Any]]:
        """What moves have tried beside what they say; empty where they try nothing."""
        found = (getattr(move.made, "layouts", None) for move in self.moves)
        return next((layouts for layouts in found if layouts is not None), [])

    @property
    def inputs(self) -> Inputs:
        return self.result.inputs

    @property
    def title(self) -> str:
        return self.result.scenario

    @property
    def fits(self) -> bool | None:
        """Whether any of them fits into memory."""
        known = {move.result.fits for move in self.moves}
        return True if True in known else None if None in known else False

    def to_frame(self) -> "pd.DataFrame":
        """One row a move."""
        import pandas as pd

        return pd.DataFrame(self.rows)


@whole("moving the job")
def moves(
    scenario: str | PathLike[str] | BaseScenario,
    settings: Settings = (),
    *,
    global_batch: int | None = None,
) -> Moves:
    """Play a job elsewhere: a recording, on a cluster that `settings` name, in other worlds, with
    other batches and shardings of its states; a loop of generation and training divided otherwise.
    With `global_batch` these are moves that train so many samples a step. Raises `InputError` for a
    job that cannot be moved, and where nothing is left."""
    setup = kind.set_up(_on(scenario, settings))
    suggestions = kind.moves(setup)
    with part(0.05):
        result = kind.answer(getattr(setup, "brief", setup))
    batch = result.inputs.batch
    if global_batch is not None:
        suggestions = [one for one in suggestions if round(one.samples * batch) == global_batch]
        if not suggestions:
            fault = f"no move of {batch:,.0f} samples a step trains {global_batch:,}"
            raise InputError("--global-batch", fault, "leave it out to see what there is")
    with part(0.15):
        bounds = [
            _least(one, setup) for one in counted(suggestions, total=len(suggestions), unit="bound")
        ]
    with part(0.4):
        tried = _tried(setup, suggestions, bounds)
    with part(0.4):
        found = sorted(_again(setup, sorted(tried.played, key=_rank)), key=_rank)
    return Moves(
        result=result, moves=tuple(found), refused=tuple(tried.refused), slower=tuple(tried.slower),
        setup=setup,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Tried:
    """What has come of moves: they are played, cannot be, or need not be."""

    played: list[Move]
    refused: list[tuple[str, str]]
    slower: list[tuple[str, str]]


def _tried(setup: Setup, suggestions: list[Suggestion], bounds: list[float]) -> _Tried:
    found, best = _Tried([], [], []), inf
    order = sorted(range(len(bounds)), key=bounds.__getitem__)
    for place in counted(so_far(iter(order)), total=len(order), unit="move"):
        one = suggestions[place]
        if _ESTIMATED * bounds[place] > _FAR * best:
            why = f"at least {_ESTIMATED * bounds[place] / best:.2f} times as slow as the best"
            found.slower.append((one.change, why))
            continue
        try:
            result, seconds = _played(one.made, setup)
        except InputError as error:
            found.refused.append((one.change, str(error)))
        else:
            own = Move(
                moved=one.change, result=result, place=place, times=(seconds,), made=one.made
            )
            found.played.append(own)
            best = min(best, own.cost) if result.fits else best
    return found


def _played(made: Callable[[Setup], Setup], setup: Setup) -> tuple[JobAnswer, float]:
    """A move, and the seconds of a step there; moves that draw samples say what chance has done.
    Raises `InputError`."""
    result = kind.answer(own := made(setup))
    even = getattr(made, "seconds", None)
    seconds = float(result.get("step_time")) if even is None else even(result, own)
    return result, seconds


def _least(one: Suggestion, setup: Setup) -> float:
    """What the move takes at least; 0 where that is not known, or the move cannot be played."""
    least = getattr(one.made, "least", None)
    try:
        return 0.0 if least is None else float(least(setup))
    except InputError:
        return 0.0


def _rank(move: Move) -> tuple[bool, float]:
    return move.result.fits is False, -move.rate


def _on(scenario: str | PathLike[str] | BaseScenario, settings: Settings) -> BaseScenario:
    """The scenario with its settings; one that divides its GPUs does so on other `gpus`, too."""
    changes, asked = dict(settings_of(settings)), kind.load(scenario, settings)
    given = kind.load(scenario, {k: v for k, v in changes.items() if k != "gpus"})
    resized = getattr(given, "resized", None)
    if "gpus" not in changes or resized is None:
        return asked
    return cast(BaseScenario, resized(asked.gpus))


def _again(setup: Setup, found: list[Move]) -> Iterator[Move]:
    """The moves, those near the best with further seeds where seeds make a difference."""
    scenario = getattr(setup, "scenario", None)
    drawn = None if scenario is None else kind.seeds(scenario)
    seeds = [] if drawn is None else [kind.set_up(own) for own in islice(drawn, 1, _SEEDS)]
    near = [move for move in found if move.result.fits and move.made]
    near = [move for move in near if move.rate * _NEAR >= near[0].rate] if seeds else []
    again: list[Move] = []
    for move in counted(so_far(iter(near)), total=len(near), unit="move with other seeds"):
        if len(again) >= _MOST and max(own.rate for own in again) >= move.rate:
            break
        others = (_played(move.made, own)[1] for own in seeds)  # type: ignore[arg-type]
        again.append(replace(move, times=(*move.times, *others)))
    yield from again
    yield from (move for move in found if move not in near[: len(again)])
