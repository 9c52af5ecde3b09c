"""The answer to a run of workers that share updates."""

from dataclasses import field, replace
from math import inf
from typing import TYPE_CHECKING, Any

from sim.config.dataclass import dataclass
from sim.config.readable import human_seconds
from sim.engine.timeline import Timeline
from sim.hardware.cluster.topology import Topology
from sim.jobs.sharing.learning.task import NoTask
from sim.jobs.sharing.update_record import CurvePoint, held
from sim.results.answer import JobAnswer

if TYPE_CHECKING:
    import pandas as pd

_STEPS_SHOWN = 10
_COLUMNS = (
    "time", "time_low", "time_expected", "time_high", "updates", "updates_per_second", "samples",
    "samples_per_second", "bytes", "dropped", "lost", "straggler_seconds", "loss", "diverged",
    "time_to_target", "fits", "events",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(JobAnswer):
    """The pace of shared updates, and the losses of the task that the workers learnt.

    `worker` describes a worker in words. `time` (s) is the time of the whole run. `shares` are mean
    shares of this time by cause, adding up to 1 (a client that no round has chosen is `idle`), and
    `workers` has a row for each worker. A measured run would take `time_low` to `time_high` with
    probability `interval["level"]`, and `time_expected` at the median. These times follow from the
    errors of measured steps of the same software (`sim.uncertainty.intervals`); measured
    `[sharing.times]` have no error. All other figures are simulated.

    `staleness` counts the updates between reading the weights and updating them: mean, largest and
    histogram. `links` are the busiest links with their bytes; `bytes` are the bytes of all links.
    `straggler_seconds` is how much longer the run takes than with nothing slow. `memory` has the
    bytes of workers, GPU 0 and servers by part, and their `room`; `fits` says whether all these
    devices have the memory. If a worker is a group of GPUs, `step` has the seconds of its step by
    cause.

    `loss` is the loss of the method's weights: the servers' weights, or the mean of all workers'.
    It is no finite number if the run has `diverged` (None in JSON). `spread` has the mean loss of
    the workers' own weights (`worker`), and the highest of these losses (`worst`). Its `distance`
    is the root mean square of |x_i - mean|, for the weights x_i of worker i. `rate` is the learning
    rate in words; `reach` is how far the gradient of one worker moves the weights in the end
    (`Sharing.reach`). `curve` holds points (s, samples, loss, bytes, accuracy) of the run
    (`curve_frame`); `accuracy` is the share of right answers at its end, if the task classifies.
    From `time_to_target` on, the loss is at most the `target` for the rest of the run. `label` says
    what the losses show. `to_target` has the `seconds` and `samples` to the target of
    `[sharing.efficiency]` with this `batch` an update.
    """

    view = "sim.interface.views.sharing"
    picture = "sim.interface.plots.pipeline:run"
    report = "sim.interface.page.shared"
    comparison = "sim.analysis.comparison.sharing:SharingComparison"
    unwritten = ("timeline", "topology")

    method: str
    worker: str
    time: float
    time_low: float
    time_expected: float
    time_high: float
    interval: dict[str, Any]
    updates: int
    samples: float
    updates_per_second: float
    samples_per_second: float
    dropped: int
    lost: int
    shares: dict[str, float]
    staleness: dict[str, Any]
    workers: tuple[dict[str, Any], ...]
    links: tuple[dict[str, Any], ...]
    bytes: float
    loss: float | None
    spread: dict[str, float]
    rate: str
    curve: tuple[CurvePoint, ...]
    time_to_target: float | None
    task: str
    label: str
    reach: float | None = None
    accuracy: float | None = None
    target: float | None = None
    diverged: bool = False
    to_target: dict[str, float] = field(default_factory=dict)
    memory: tuple[dict[str, Any], ...] = ()
    step: dict[str, float] = field(default_factory=dict)
    topology: Topology | None = field(default=None, compare=False)

    @property
    def title(self) -> str:
        return f"{self.scenario}: {self.method}"

    @property
    def columns(self) -> dict[str, Any]:
        """The figures of a sweep's row; names of seconds by cause and of memory have a prefix."""
        named = {name: getattr(self, name) for name in _COLUMNS}
        seconds = {f"seconds.{cause}": part * self.time for cause, part in self.shares.items()}
        memory = {f"memory.{holder['name']}": holder["total"] for holder in self.memory}
        return named | seconds | memory | {"staleness": self.staleness["mean"]}

    @property
    def misfit(self) -> str:
        return "" if self.fits else self.warnings[0]

    @property
    def learns_nothing(self) -> bool:
        """Whether the workers have no task."""
        return self.task == NoTask.name

    def curve_frame(self) -> "pd.DataFrame":
        """The curve as a table with a row for each point."""
        import pandas as pd

        return pd.DataFrame(self.curve, columns=CurvePoint._fields)

    def reached(self, loss: float) -> CurvePoint | None:
        """The point from which on the curve stays at or below `loss`; None if it ends above."""
        return held(self.curve, loss)

    def time_to(self, loss: float) -> float | None:
        """Seconds until the curve is at or below `loss` for the rest of the run; None if never."""
        there = self.reached(loss)
        return there and there.seconds

    def touched(self, loss: float) -> CurvePoint | None:
        """The first point of the curve at or below `loss`, if only for a moment; None if never."""
        return next((point for point in self.curve if point.loss <= loss), None)

    def loss_within(self, *, seconds: float = inf, samples: float = inf) -> float | None:
        """The last loss of the curve within these `seconds` and `samples`; its first loss if no
        point lies within, None without a curve."""
        points = [p for p in self.curve if p.seconds <= seconds and p.samples <= samples]
        points = points or list(self.curve[:1])
        return points[-1].loss if points else None

    @property
    def excerpt_name(self) -> str:
        """The part of the run that the excerpt shows, in words."""
        part, whole = human_seconds(self.excerpt.end), human_seconds(self.time)
        return f"the run, {whole}" if part == whole else f"the first {part} of {whole}"

    @property
    def excerpt(self) -> Timeline:
        """The timeline of the first steps: as many steps as a picture has room for."""
        steps = max((row["steps"] for row in self.workers), default=1)
        return self.first(min(self.time, self.time * _STEPS_SHOWN / max(steps, 1)))

    def first(self, seconds: float) -> Timeline:
        """The timeline up to a moment."""
        end = min(self.time, seconds)
        spans = [
            span if span.end <= end else replace(span, end=end)
            for span in self.timeline.spans
            if span.start < end
        ]
        return replace(self.timeline, spans=spans, end=end)
