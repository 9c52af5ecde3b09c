"""Where can a job be moved to? Every move is played, and the best come first. A recording moves to
other worlds (numbers of ranks), batches and shardings. A loop of generation and training moves to
other divisions of its GPUs.

Moves that know a lower bound of their GPU-seconds per sample (`least`) are played in the order of
this bound. A move whose bound is far above the best move's cost is not played.

If a play draws random numbers, moves near the best are played with further seeds. All moves have
the same seeds, so a paired comparison says whether chance explains a difference.
"""

from collections.abc import Callable, Iterator
from dataclasses import field, replace
from itertools import islice
from math import inf
from os import PathLike
from statistics import fmean
from typing import Any, cast

import numpy as np

from sim import kind, questions
from sim.analysis.samples.pairs import Floats, half, paired
from sim.config.counting import counted, part, whole
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.stopping import so_far
from sim.kind import Setup
from sim.results.answer import Answer, Inputs, JobAnswer
from sim.results.by_line import Suggestion
from sim.scenario.scenario import BaseScenario
from sim.scenario.settings import Settings, settings_of

_SEEDS = 5  # seeds of moves near the best
_NEAR = 1.15  # moves up to this many times as slow as the best are played with further seeds
_LEAST_AGAIN = 3  # at least so many moves are played with further seeds
_ESTIMATED = 0.9  # factor on a move's `least`, an estimate that may be some percent too high
_FAR = 1.05  # a move is not played if its bound is more than so many times the best cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A change that moves the job (`moved`), and the answer of the moved job. `place` is the index
    among the suggestions, the simplest first. `times` are the seconds of a step with each seed. A
    step trains `share` times as many samples as a step of the job without a move."""

    moved: str
    result: JobAnswer
    place: int = 0
    times: tuple[float, ...] = ()
    share: float = 1.0
    made: Callable[[Setup], Setup] | None = field(default=None, repr=False, compare=False)

    @property
    def gpus(self) -> int:
        return self.result.inputs.gpus

    @property
    def samples(self) -> float:
        """Samples of a step; 0 where they are unknown."""
        return float(self.result.get("samples") or self.result.inputs.batch)

    @property
    def step_time(self) -> float:
        """Seconds of a step, as the mean over seeds."""
        return fmean(self.times)

    @property
    def within(self) -> float | None:
        """Half of the 90 % interval of the mean's relative error; None with a single seed."""
        several = len(self.times) > 1
        return half(np.array(self.times)) / self.step_time if several else None

    def alike(self, other: "Move") -> bool:
        """Return whether chance explains the difference to another move with the same seeds."""
        if min(len(self.times), len(other.times)) < 2:
            return self is other
        found = paired(self._each, other._each)
        return found is not None and found.alike

    @property
    def _each(self) -> Floats:
        """The `cost` with each seed."""
        return np.array(self.times) * self.gpus / (self.samples or self.share)

    @property
    def memory(self) -> float:
        """Bytes of the fullest GPU."""
        return float(self.result.get("memory_per_gpu")["total"])

    @property
    def cost(self) -> float:
        """GPU-seconds per sample, or per step of the unmoved job if samples are unknown."""
        return 1.0 / self.rate

    @property
    def rate(self) -> float:
        """Samples per second and GPU. If samples are unknown, steps of the unmoved job per second
        and GPU; the order of the moves is the same."""
        return (self.samples or self.share) / self.step_time / self.gpus

    @property
    def samples_per_second(self) -> float | None:
        """Samples per second of all GPUs; None where samples are unknown."""
        return self.rate * self.gpus if self.samples else None

    @property
    def row(self) -> dict[str, Any]:
        """The move as numbers."""
        rate = self.samples_per_second
        return {
            "moved": self.moved, "gpus": self.gpus, "batch": self.samples,
            "step_time": self.step_time, "samples_per_second": rate,
            "samples_per_second_per_gpu": rate and rate / self.gpus, "within": self.within,
            "memory": self.memory, "fits": self.result.fits,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves(Answer):
    """The moves of a job: moves that fit come first, then moves with more samples per second and
    GPU. `result` is the job without a move (a single step, if its setup has a `brief` form).
    `refused` are moves that cannot be played, with the reason. `slower` are moves that were not
    played because they are slower, with the reason. `recommended` is the simplest move that cannot
    be told apart from the best."""

    view = "sim.interface.views.explanation:moves"
    picture = "sim.interface.plots.explanation:moves"
    unwritten = ("result", "moves", "setup")
    derived = ("moves=rows", "recommended=recommendation", "layouts", "inputs")
    frame_rows = "rows"

    result: JobAnswer
    moves: tuple[Move, ...]
    refused: tuple[tuple[str, str], ...]
    slower: tuple[tuple[str, str], ...] = ()
    setup: Setup | None = field(default=None, repr=False, compare=False)

    def emitted(self, form: str) -> tuple[str, list[str]]:
        """Return a framework's arguments that start the recommended move, and the values that the
        arguments cannot express. Raises `InputError`."""
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
        """All layouts that the moves have tried; empty where moves try no layouts."""
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
        """Whether any move fits into memory; None where it is unknown."""
        known = {move.result.fits for move in self.moves}
        return True if True in known else None if None in known else False


@whole("moving the job")
def moves(
    scenario: str | PathLike[str] | BaseScenario,
    settings: Settings = (),
    *,
    global_batch: int | None = None,
) -> Moves:
    """Play the moves of a job. A recording, on a cluster that `settings` name, moves to other
    worlds, batches and shardings of its states. A loop of generation and training divides its GPUs
    in other ways. With `global_batch`, only moves with that number of samples in a step are played.
    Raises `InputError` for a job that cannot be moved, and if no move is left."""
    setup = kind.set_up(_on(scenario, settings))
    suggestions = questions.moves(setup)
    with part(0.05):
        result = kind.answer(getattr(setup, "brief", setup))
    batch = result.inputs.batch
    if global_batch is not None:
        suggestions = [move for move in suggestions if round(move.samples * batch) == global_batch]
        if not suggestions:
            fault = f"a step trains {batch:,.0f} samples, and no move trains {global_batch:,}"
            raise InputError("--global-batch", fault, "leave it out to see all moves")
    with part(0.15):
        bounds = [
            _least(move, setup)
            for move in counted(suggestions, total=len(suggestions), unit="bound")
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
    """The moves that were played, cannot be played, and need not be played."""

    played: list[Move]
    refused: list[tuple[str, str]]
    slower: list[tuple[str, str]]


def _tried(setup: Setup, suggestions: list[Suggestion], bounds: list[float]) -> _Tried:
    found, best = _Tried([], [], []), inf
    order = sorted(range(len(bounds)), key=bounds.__getitem__)
    for place in counted(so_far(iter(order)), total=len(order), unit="move"):
        suggestion = suggestions[place]
        if _ESTIMATED * bounds[place] > _FAR * best:
            why = f"at least {_ESTIMATED * bounds[place] / best:.2f} times as slow as the best"
            found.slower.append((suggestion.change, why))
            continue
        try:
            result, seconds = _played(suggestion.made, setup)
        except InputError as error:
            found.refused.append((suggestion.change, str(error)))
        else:
            move = Move(
                moved=suggestion.change,
                result=result,
                place=place,
                times=(seconds,),
                share=suggestion.samples,
                made=suggestion.made,
            )
            found.played.append(move)
            best = min(best, move.cost) if result.fits else best
    return found


def _played(made: Callable[[Setup], Setup], setup: Setup) -> tuple[JobAnswer, float]:
    """Return the answer of a move, and the seconds of its step. If the number of samples in the
    step is random, the seconds are scaled to the expected number. Raises `InputError`."""
    result = kind.answer(moved := made(setup))
    even = getattr(made, "seconds", None)
    seconds = float(result.get("step_time")) if even is None else even(result, moved)
    return result, seconds


def _least(suggestion: Suggestion, setup: Setup) -> float:
    """Return the lower bound of a move; 0 where it is unknown, or the move cannot be played."""
    least = getattr(suggestion.made, "least", None)
    try:
        return 0.0 if least is None else float(least(setup))
    except InputError:
        return 0.0


def _rank(move: Move) -> tuple[bool, float]:
    return move.result.fits is False, -move.rate


def _on(scenario: str | PathLike[str] | BaseScenario, settings: Settings) -> BaseScenario:
    """Return the scenario with its settings. A scenario that divides its GPUs among parts is
    resized to the `gpus` of the settings."""
    changes, asked = dict(settings_of(settings)), kind.load(scenario, settings)
    given = kind.load(scenario, {k: v for k, v in changes.items() if k != "gpus"})
    resized = getattr(given, "resized", None)
    if "gpus" not in changes or resized is None:
        return asked
    return cast(BaseScenario, resized(asked.gpus))


def _again(setup: Setup, found: list[Move]) -> Iterator[Move]:
    """Yield the moves. If plays are random, moves near the best are played with further seeds."""
    scenario = getattr(setup, "scenario", None)
    drawn = None if scenario is None else questions.seeds(scenario)
    seeds = [] if drawn is None else [kind.set_up(seeded) for seeded in islice(drawn, 1, _SEEDS)]
    near = [move for move in found if move.result.fits and move.made]
    near = [move for move in near if move.rate * _NEAR >= near[0].rate] if seeds else []
    again: list[Move] = []
    for move in counted(so_far(iter(near)), total=len(near), unit="move with other seeds"):
        if len(again) >= _LEAST_AGAIN and max(played.rate for played in again) >= move.rate:
            break
        others = (_played(move.made, seed)[1] for seed in seeds)  # type: ignore[arg-type]
        again.append(replace(move, times=(*move.times, *others)))
    yield from again
    yield from (move for move in found if move not in near[: len(again)])
