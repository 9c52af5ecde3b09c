"""Where a job can be moved to, each move played, the best first: other worlds, batches and
shardings of a recording, other divisions of the GPUs of a loop.
"""

from collections.abc import Iterator, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar

from sim import kind
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.progress import counted, whole
from sim.config.stopping import so_far
from sim.kind import Setup
from sim.results.answer import Answer, Inputs, JobAnswer
from sim.results.by_line import Suggestion
from sim.scenario.scenario import BaseScenario
from sim.scenario.settings import Settings

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What is `moved`, and the step there."""

    moved: str
    result: JobAnswer

    @property
    def gpus(self) -> int:
        return self.result.inputs.gpus

    @property
    def samples(self) -> float:
        """Samples of a step; 0 where they are not known."""
        return float(self.result.get("samples") or self.result.inputs.batch)

    @property
    def step_time(self) -> float:
        return float(self.result.get("step_time"))

    @property
    def memory(self) -> float:
        """Bytes of the fullest GPU."""
        return float(self.result.get("memory_per_gpu")["total"])

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
            "samples_per_second_per_gpu": self.rate, "memory": self.memory,
            "fits": self.result.fits,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves(Answer):
    """What a job can be moved to, those that fit first, then by samples a second and GPU. `refused`
    are moves that cannot be played, with the reason."""

    view = "sim.interface.views.explanation:moves"
    picture = "sim.interface.plots.explanation:moves"
    unwritten = ("result", "moves")
    derived: ClassVar[Mapping[str, str]] = {"moves": "rows", "inputs": "inputs"}

    result: JobAnswer
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
    setup = kind.set_up(kind.load(scenario, settings))
    suggestions = kind.moves(setup)
    result = kind.answer(setup)
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
            result = kind.answer(one.made(setup))
        except InputError as error:
            yield None, (one.change, str(error))
        else:
            yield Move(moved=one.change, result=result), None
