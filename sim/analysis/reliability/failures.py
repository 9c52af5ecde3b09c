"""How often do devices, nodes and jobs fail? A table of causes with counts, from TOML or CSV."""

import csv
from collections.abc import Container, Mapping, Sequence
from dataclasses import field, replace
from io import StringIO
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal

from sim import kind, questions
from sim.analysis.reliability.saving import Saving
from sim.config import catalog, reads
from sim.config.checked import Checked
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.readable import human_rate, human_seconds
from sim.config.units import DAY, HOUR, Bytes, BytesPerSecond, Ge, Gt, PositiveSeconds, Seconds
from sim.engine.training_run import Fault
from sim.parallel.checkpoint import Checkpoints
from sim.results.formatting import several
from sim.results.likely import Pace
from sim.scenario.scenario import BaseScenario
from sim.scenario.settings import changed, dotted

_YEAR = 365.25 * DAY
Component = Literal["gpu", "node", "job"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureCause(Checked):
    """A class of faults: how often it was counted, and whether it strikes a GPU, a node or the job.

    `shape` is Weibull's (1: exponential). `breaks`, `slows` and `planned` are explained in
    `sim.engine.training_run`. `state` holds settings of the scenario, such as a link that is down
    or a slow node. In a state training goes on, with the step time that these settings give. The
    state lasts for `lasts` on average, by default until the repair.
    """

    name: str
    count: Annotated[float, Ge(0)]
    component: Component = "gpu"
    shape: Annotated[float, Gt(0)] = 1.0
    breaks: bool = False
    slows: Annotated[float, Ge(1)] = 1.0
    planned: bool = False
    state: dict[str, Any] = field(default_factory=dict)
    lasts: PositiveSeconds | None = None

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        if self.state and (self.breaks or self.planned or self.slows > 1.0):
            raise ValueError("a step played in the state says how slow training is: leave out "
                             "breaks, planned and slows")  # fmt: skip
        if self.lasts is not None and not self.state and self.slows == 1.0:
            raise ValueError("lasts needs a state or slows: give one of them")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What happens after a fault. `interval` is the time between checkpoints (default: Daly's
    best). A checkpoint stops training for `stop` (default: bytes / `storage`). Reading a checkpoint
    back takes bytes / `storage`, too, and is added to `restart`. Without `spares`, spare nodes
    never run out."""

    detection: Seconds = 120.0
    restart: Seconds = 360.0
    repair: Seconds = 86400.0
    slow_detection: Seconds = 3600.0
    spares: Annotated[int, Ge(0)] | None = None
    storage: BytesPerSecond = 2e12
    interval: PositiveSeconds | None = None
    stop: Seconds | None = None
    asynchronous: bool = False
    snapshot: Seconds = 1.0
    elastic: bool = False
    bytes: Bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """Faults that `source` counted on `gpus` devices within `window` (s), and the recovery from
    them. `recovery.storage` is the bandwidth for all of these devices. `interruptions` sets the
    unplanned interruptions of a device in a year; the causes then keep their shares."""

    source: str = ""
    gpus: Annotated[int, Gt(0)]
    window: PositiveSeconds
    gpus_per_node: Annotated[int, Gt(0)] = 8
    interruptions: Annotated[float, Ge(0)] | None = None
    cause: tuple[FailureCause, ...]
    recovery: Recovery = field(default_factory=Recovery)

    def of_job(
        self, gpus: int, checkpoints: Checkpoints | None, step: float, settled: Container[str]
    ) -> "Failures":
        """Return these failures for a job on `gpus` devices. The job has its share of the storage.
        The scenario's `checkpoints` set the interval, in steps of `step` seconds, and may set the
        storage. Keys that the user has `settled`, such as "recovery.storage", stay unchanged."""
        known: dict[str, float] = {"storage": self.recovery.storage * min(gpus / self.gpus, 1.0)}
        if checkpoints is not None:
            known["interval"] = checkpoints.steps * step
        if checkpoints is not None and checkpoints.storage is not None:
            known["storage"] = checkpoints.storage
        found = {key: known[key] for key in known if f"recovery.{key}" not in settled}
        return replace(self, recovery=replace(self.recovery, **found))  # type: ignore[arg-type]

    def check_states(self, job: BaseScenario) -> None:
        """Raise `InputError` for a state that the job or its cluster cannot be in, such as a slow
        link that does not exist; no step is played."""
        for cause in self.cause:
            if cause.state:
                kind.set_up(kind.load(job, dotted(cause.state)), brief=True)

    def in_states(self, job: BaseScenario, pace: Pace) -> "Failures":
        """Play a step in each cause's state, and return the failures with the factors by which
        these steps are longer than the step of `pace`. Raises `InputError`."""
        causes = []
        for cause in self.cause:
            slows = cause.slows
            if cause.state:
                again = questions.pace(kind.set_up(kind.load(job, dotted(cause.state)), brief=True))
                slows = max(again.seconds / pace.seconds, 1.0)
            lasts = self.recovery.repair if cause.state and cause.lasts is None else cause.lasts
            causes.append(replace(cause, state={}, slows=slows, lasts=lasts))
        return replace(self, cause=tuple(causes))

    @property
    def states(self) -> tuple[str, ...]:
        """The causes that last for a while, in words."""
        return tuple(
            f"{cause.name}: steps take {cause.slows:.3f} times as long for {_long(cause.lasts)}"
            for cause in self.cause
            if cause.lasts is not None
        )

    def assumed(
        self,
        gpus: int,
        checkpoints: Checkpoints | None,
        settled: Container[str],
        saved: Saving | None = None,
    ) -> tuple[str, ...]:
        """Say which assumptions an answer for `gpus` devices makes. `self` is the table as
        loaded; `saved` describes checkpoints whose traffic was played."""
        scale = "" if gpus == self.gpus else f", in proportion to {several(gpus, 'GPU')}"
        if self.interruptions is not None:
            scale += f", {self.interruptions:g} interruptions per device and year as set"
        whole = [cause.name for cause in self.cause if cause.component == "job"]
        if scale and whole:
            scale += f"; failures of a whole job ({', '.join(whole)}) keep their rate"
        rules, storage = (
            self.recovery,
            self.of_job(gpus, checkpoints, 1.0, settled).recovery.storage,
        )
        if "recovery.storage" in settled:
            known = "as set"
        elif checkpoints is not None:
            known = "as the scenario says"
        else:
            known = f"the share of {several(gpus, 'GPU')} in {human_rate(rules.storage, 'B/s')}"
        spares = "as many spare nodes as it takes (recovery.spares = 0: none)"
        if rules.spares is not None:
            spares = f"{rules.spares:,} spare nodes"
        return (
            f"failures: {self.source or 'of the table given'}{scale}",
            f"checkpoints: {saved}" if saved else f"storage: {human_rate(storage, 'B/s')}, {known}",
            f"detection in {human_seconds(rules.detection)}, restart in "
            f"{human_seconds(rules.restart)} and the time of reading back, {spares}, "
            f"repair in {rules.repair / HOUR:g} h",
        )

    @property
    def per_device_year(self) -> float:
        """Unplanned interruptions of a device in a year, at the rate of the counted job."""
        return self._seen if self.interruptions is None else self.interruptions

    @property
    def _seen(self) -> float:
        lasting = [cause for cause in self.cause if cause.state or cause.lasts is not None]
        seen = sum(c.count for c in self.cause if not c.planned and c not in lasting)
        return seen / self.gpus / (self.window / _YEAR)

    def between(self, gpus: int, *components: Component) -> float:
        """Return the mean seconds from one fault to the next of a job on `gpus` devices, for all
        components or for some."""
        pairs = zip(self.cause, self.faults(gpus), strict=True)
        rate = sum(
            fault.rate
            for cause, fault in pairs
            if fault.lasts is None and (not components or cause.component in components)
        )
        return 1.0 / rate if rate else inf

    def faults(self, gpus: int) -> list[Fault]:
        """Return the faults of a job on `gpus` devices. Rates grow with its GPUs or nodes.

        >>> failures = Failures(gpus=8, window=100.0, cause=(FailureCause(name="gpu", count=4),))
        >>> failures.faults(16)[0].rate
        0.08
        """
        return [self._fault(cause, gpus) for cause in self.cause]

    def _fault(self, cause: FailureCause, gpus: int) -> Fault:
        share = 1.0 if cause.component == "job" else gpus / self.gpus
        if self.interruptions is not None and not cause.planned and cause.lasts is None:
            share *= self.interruptions / self._seen
        each = {"gpu": 1, "node": self.gpus_per_node, "job": gpus}[cause.component]
        return Fault(
            name=cause.name,
            rate=cause.count / self.window * share,
            components=max(gpus // each, 1),
            shape=cause.shape,
            breaks=cause.breaks,
            slows=cause.slows,
            planned=cause.planned,
            lasts=cause.lasts,
        )


def _long(seconds: float) -> str:
    return human_seconds(seconds) if seconds < HOUR else f"{seconds / HOUR:.3g} h"


def of_table(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a question that change its table of failures."""
    return {
        key: value
        for key, value in settings.items()
        if key.startswith("recovery.") or key in ("gpus_per_node", "interruptions")
    }


def load(name: str, settings: Sequence[tuple[str, Any]] = ()) -> Failures:
    """Read failures from a name in `topologies/failures`, a .toml, or a .csv of interruptions.

    `settings` change values by dotted key, e.g. ("recovery.restart", "10 min"). Raises
    `InputError`.

    >>> round(sum(cause.count for cause in load("llama3").cause if not cause.planned))
    419
    """
    if name.endswith(".csv"):
        path, data = Path(name), {"source": Path(name).name, **_from_csv(Path(name))}
    else:
        path = catalog.find("topologies/failures", name, where="--failures")
        data = catalog.read(path)
    table = catalog.validate(changed(data, dict(settings), str(path)), Failures, str(path))
    if table.interruptions is not None and not any(cause.count for cause in table.cause):
        raise InputError(str(path), "counts no interruption that could be scaled", "add a cause")
    return table


def _from_csv(path: Path) -> dict[str, Any]:
    """Read the columns component, count, window_days and gpus of a table of interruptions, such as
    Llama 3's table 5. The column category says what breaks; rows of totals are skipped."""
    try:
        reader = csv.DictReader(StringIO(reads.text(path)))
        rows = [row for row in reader if row.get("category") != "total"]
    except csv.Error as error:
        raise InputError(str(path), f"cannot be read ({error})", "check the file") from None
    needed = ("component", "count", "window_days", "gpus")
    missing = [key for key in needed if not rows or rows[0].get(key) is None]
    if missing:
        remedy = f"it needs {', '.join(needed)}"
        raise InputError(str(path), f"has no rows or no column {missing[0]!r}", remedy)
    try:
        causes = [
            {"name": row["component"], "count": float(row["count"]), **_kind(row)} for row in rows
        ]
        return {"gpus": int(rows[0]["gpus"]), "window": f"{float(rows[0]['window_days'])} d",
                "cause": causes}  # fmt: skip
    except (TypeError, ValueError) as error:
        raise InputError(
            str(path), f"has a cell that is not a number ({error})", "correct it"
        ) from None


def _kind(row: dict[str, str]) -> dict[str, Any]:
    """Return the component that a row's faults strike. Faults of GPUs and hosts break a node; other
    faults only stop the job."""
    category = (row.get("category") or "").lower()
    if category == "gpu":
        return {"component": "gpu", "breaks": True}
    if category in ("host", "unplanned maintenance"):
        return {"component": "node", "breaks": True}
    return {"component": "node" if category == "network" else "job"}
