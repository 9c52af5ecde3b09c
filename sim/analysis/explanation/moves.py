"""Where a recording can be moved to: worlds, batches and shardings, each played, the best first."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, cast

from sim import kind
from sim.config.errors import InputError
from sim.config.progress import counted, whole
from sim.config.stopping import so_far
from sim.kind import Setup
from sim.results.answer import Answer, Inputs
from sim.results.result import Result
from sim.results.suggestion import Suggestion
from sim.scenario.scenario import BaseScenario
from sim.scenario.settings import Settings

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What is `moved`, and the step there."""

    moved: str
    result: Result

    @property
    def rate(self) -> float:
        """Samples a second and GPU; steps a second and GPU where samples are not known."""
        result = self.result
        return (result.inputs.batch or 1.0) / result.step_time / result.ranks

    @property
    def row(self) -> dict[str, Any]:
        """It as numbers."""
        result = self.result
        return {
            "moved": self.moved, "gpus": result.ranks, "batch": result.inputs.batch,
            "step_time": result.step_time, "samples_per_second": self.rate * result.ranks,
            "samples_per_second_per_gpu": self.rate, "memory": result.memory_per_gpu["total"],
            "fits": result.fits,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves(Answer):
    """Worlds, batches and shardings to which a recording can be moved, those that fit first, then
    by samples a second and GPU. `refused` are those to which it cannot, with the reason."""

    view = "sim.interface.views.moves"
    picture = "sim.interface.plots.moves"
    unwritten = ("result", "moves")
    derived: ClassVar[Mapping[str, str]] = {"moves": "rows", "inputs": "inputs"}

    result: Result
    moves: tuple[Move, ...]
    refused: tuple[tuple[str, str], ...]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The moves, the best first."""
        return [move.row for move in self.moves]

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


@whole("moving the recording")
def moves(
    scenario: str | PathLike[str] | BaseScenario,
    settings: Settings = (),
    *,
    global_batch: int | None = None,
) -> Moves:
    """Play a recording, on a cluster that `settings` name, in other worlds, with other batches and
    shardings of its states; with `global_batch` those that train so many samples a step. Raises
    `InputError` for a job that has no recording, and where nothing is left."""
    setup = kind.set_up(kind.load(scenario, settings))
    suggestions = kind.moves(setup)
    result = cast(Result, kind.answer(setup))
    batch = result.inputs.batch
    if global_batch is not None:
        suggestions = [one for one in suggestions if round(one.samples * batch) == global_batch]
        if not suggestions:
            fault = f"no move of {batch:,.0f} samples a step trains {global_batch:,}"
            raise InputError("--global-batch", fault, "leave it out to see what there is")
    played = list(_played(setup, suggestions))
    found = [move for move, _ in played if move is not None]
    found.sort(key=lambda move: (move.result.fits is False, -move.rate))
    reasons = tuple(reason for _, reason in played if reason is not None)
    return Moves(result=result, moves=tuple(found), refused=reasons)


def _played(
    setup: Setup, suggestions: list[Suggestion]
) -> Iterator[tuple[Move | None, tuple[str, str] | None]]:
    for one in counted(so_far(iter(suggestions)), total=len(suggestions), unit="move"):
        try:
            result = cast(Result, kind.answer(one.made(setup)))
        except InputError as error:
            yield None, (one.change, str(error))
        else:
            yield Move(moved=one.change, result=result), None
