"""`sim.sweep`: one scenario at every point of a grid or table."""

from collections.abc import Iterable, Mapping
from dataclasses import field
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim import questions
from sim.analysis.executors import Jobs
from sim.analysis.sweeps import points, table
from sim.analysis.sweeps.sweep import at_all_points
from sim.analysis.sweeps.sweep import sweep as swept
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.results.answer import Answer, Inputs, function_of, said_of
from sim.scenario.scenario import BaseScenario, name_of
from sim.scenario.settings import Settings, flat, settings_of
from sim.scenario.setup import load_model

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Varied = Iterable[str] | Mapping[str, Iterable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sweep(Answer):
    """A table with a row of `frame` for each point. Varied keys are columns of the row; `inputs`
    are the scenario's inputs before any change. `damaged` is the number of stored rows that had to
    be computed again."""

    view = "sim.interface.views.sweep"
    picture = "sim.interface.plots.sweep"
    unwritten = ("frame", "damaged")
    derived = ("points", "valid", "rows")

    scenario: str
    inputs: Inputs = field(default_factory=Inputs)
    frame: "pd.DataFrame"
    damaged: int = 0

    @property
    def points(self) -> int:
        return len(self.frame)

    @property
    def valid(self) -> int:
        """How many points could be simulated and fit into memory."""
        return int(self.frame["valid"].sum())

    @property
    def noted(self) -> tuple[str, ...]:
        """The notes of the inputs, and the points that ran another schedule than they name."""
        notes = self.inputs.notes
        if "pipeline" not in self.frame:
            return notes
        frame = self.frame[self.frame["valid"] & (self.frame["plan.pp"] > 1)]
        other = frame[frame["pipeline"] != frame["plan.schedule"]]
        if not len(other):
            return notes
        numbers = ", ".join(map(str, other.index))
        played = "1f1b with interleave > 1: the interleaved schedule was played"
        return (*notes, f"{played} at point {numbers}")

    @property
    def fits(self) -> bool:
        """Whether any point that could be simulated fits."""
        known = self.frame["fits"].dropna() if "fits" in self.frame else ()
        return not len(known) or any(known)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return table.records(self.frame)

    def plot(self, of: str = "") -> "Figure":
        """Draw the sweep, or one numeric column. Raises `InputError` if there is no such column."""
        numbers = [str(name) for name in self.frame.select_dtypes("number").columns]
        if of and of not in numbers:
            raise InputError.unknown("Sweep", f"has no numeric column {of!r}", of, numbers)
        figure: Figure = function_of(self.picture, "figure")(self, of)
        return figure

    def to_frame(self) -> "pd.DataFrame":
        """Return a row for each point."""
        return self.frame


def sweep(
    scenario: str | PathLike[str] | BaseScenario,
    vary: Varied = (),
    *,
    zipped: bool = False,
    csv: str | PathLike[str] | None = None,
    samples: int | None = None,
    store: str | PathLike[str] | None = None,
    jobs: Jobs = None,
    price: str | None = None,
    settings: Settings = (),
) -> Sweep:
    """Simulate a scenario (a name, a file or a `Scenario`) at every point of a grid or table.

    `vary` are texts as `sim sweep --vary` takes them ("plan.tp=1,2,4"), or a mapping of keys to
    values; with `zipped`, the first values of all keys form a point, then the second values, and so
    on. `csv` is a table with a row for each point.
    With `samples`, that number of steps with stragglers, or of runs with different seeds, is drawn
    at each point. A row then has means, spreads and paired differences from the first valid point.
    `store` is the SQLite file that keeps results. `jobs` is a number of processes, or the address
    of a Dask scheduler. `settings`, and the `price` of a GPU, hold at every point. Raises
    `InputError`.

    >>> sweep("gpt2-one-gpu", {"plan.microbatch": [1, 2]}, jobs=1).points
    2
    """
    axes = (
        [points.SweepAxis(key=key, values=tuple(values)) for key, values in vary.items()]
        if isinstance(vary, Mapping)
        else [points.axis(text) for text in vary]
    )
    if not axes and csv is None:
        raise InputError("sim sweep", "nothing is varied", "add --vary KEY=VALUES or --csv FILE")
    given = points.rows(Path(csv)) if csv is not None else [{}]
    always = settings_of(settings, price)
    grid = points.points(axes, given, zipped=zipped)
    job = scenario if isinstance(scenario, BaseScenario) else fspath(scenario)
    frame = swept(
        job,
        grid,
        always=always,
        samples=samples or 0,
        store=None if store is None else Path(store),
        jobs=jobs,
    )
    loaded = at_all_points(job, grid, always)
    frame.attrs["units"] = dict(questions.answer_of(loaded).units)
    return Sweep(
        scenario=job if isinstance(job, str) else job.name,
        inputs=_inputs(loaded),
        frame=frame,
        damaged=frame.attrs["damaged"],
    )


def _inputs(job: BaseScenario) -> Inputs:
    """Return the inputs of a scenario before a sweep changes it."""
    return Inputs(
        model=name_of(job.model),
        cluster=name_of(job.topology),
        gpus=job.gpus or 0,
        stack=name_of(job.stack),
        plan={} if job.layout is None else said_of(job.layout),
        change=dict(flat(job.change)),
        notes=load_model(job).notes if name_of(job.model) else (),
    )
