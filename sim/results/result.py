"""The answer to a simulation: numbers with the field's names, ready for JSON, text and Jupyter."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

from sim.config.dataclass import dataclass
from sim.parallel.plan import Plan
from sim.program.schedule import Schedule
from sim.results.answer import JobAnswer

if TYPE_CHECKING:
    from sim.engine.link_loads import LinkLoad
    from sim.engine.memory_curve import MemoryCurve

_COLUMNS = (
    "step_time", "step_time_low", "step_time_expected", "step_time_high", "samples_per_second",
    "tokens_per_second", "tokens_per_second_per_gpu", "dollars_per_million_tokens", "mfu",
    "hfu", "model_tflops_per_gpu",
    "bubble_fraction", "straggler_seconds", "ranks", "roles", "operations", "events", "capacity",
    "fits",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(JobAnswer):
    """One predicted training step.

    `step_time` (s) is the sum of `breakdown`, the seconds of the critical rank by cause. By the
    errors on measured runs (`sim.uncertainty.intervals`), a measured step time has the median
    `step_time_expected`. It lies between `step_time_low` and `step_time_high` with the probability
    `interval["level"]`. All other figures describe the simulated step. `mfu` is model FLOPs / (step
    time x GPUs x dense peak of the GEMMs' precision), with attention counted in full even if it is
    causal (PaLM's convention). `mfu_of_peaks` has the MFU by the precision of the peak: for 8 bits
    and fewer, also for half precision. `hfu` uses executed FLOPs instead: recomputed FLOPs count
    again, FLOPs that a causal mask hides do not. It is thus below `mfu` if fused attention skips
    more than is recomputed. Samples and tokens a second are 0 if a recorded script does not tell
    them. `memory_per_gpu` holds the parts of the worst rank (bytes) and their `total`. `capacity`
    is the memory that this GPU offers, `host_memory` the host memory that offload uses on the
    fullest node. `memory_curves` has a curve over the step for each stage, `links` the loads of
    each class of links. `setup` is the simulated setup (`sim.kind.Setup`). If the plan does not
    fit, `remedies` are changes with which it fits. `parameters` counts the model's parameters, a
    tied embedding once; `active_parameters` counts the parameters used for one token. `stages` has
    a row for each pipeline stage, with the seconds of its slowest rank. If the order of passes was
    searched for, `gains` says by what share of the step fixed schedules would take longer. If
    pipelines do not drain, `staleness` says for each stage how many updates its gradients are late
    at most. `dropped` is the share of the tokens for which their experts have no room.
    `critical_path` has a row for each stage and cause on the chain of work that makes up the step
    (`sim.engine.critical_path`); the rows' `seconds` add up to the step time. `hidden` are seconds
    of the critical rank's transfers, by cause, for which it did not wait. With a loader, `loading`
    says how many seconds the step `waits` for samples, and which kind of link is their `limit`. On
    these links, samples take `seconds` and all traffic takes `busy` seconds. `device_time` says
    what share of the kernels' seconds comes from a "profile" and from the "model".
    `straggler_seconds` is how much longer the step takes than without slow ranks and links.
    `engine` is the engine that played the step, "clock" or "replay". `wall_seconds` is the time of
    the simulation itself, no part of the answer. `dollars_per_million_tokens` is rent, if the
    topology has a price.
    """

    view = "sim.interface.views.step"
    picture = "sim.interface.plots.pipeline:run"
    report = "sim.interface.page.step"
    comparison = "sim.analysis.comparison.steps:StepComparison"
    pictures: ClassVar[Mapping[str, str]] = {
        "memory": "sim.interface.plots.memory",
        "network": "sim.interface.plots.networks:loads",
    }
    unwritten = ("timeline", "memory_curves", "plan", "schedule", "links", "setup")

    parameters: int
    active_parameters: int
    step_time: float
    step_time_low: float
    step_time_expected: float
    step_time_high: float
    interval: dict[str, Any]
    samples_per_second: float
    tokens_per_second: float
    tokens_per_second_per_gpu: float
    dollars_per_million_tokens: float | None = None
    mfu: float
    mfu_of_peaks: dict[str, float]
    hfu: float
    model_tflops_per_gpu: float
    breakdown: dict[str, float]
    bubble_fraction: float
    memory_per_gpu: dict[str, float]
    capacity: float
    stages: tuple[dict[str, Any], ...]
    ranks: int
    roles: int
    operations: int
    engine: str
    remedies: Sequence[str] = field(default=(), compare=False)
    critical_path: Sequence[dict[str, Any]] = field(default=(), compare=False)
    hidden: dict[str, float] = field(default_factory=dict)
    device_time: dict[str, float] = field(default_factory=lambda: {"model": 1.0})
    loading: dict[str, Any] | None = None
    host_memory: float = 0.0
    dropped: float = 0.0
    gains: dict[str, float] = field(default_factory=dict)
    staleness: tuple[int, ...] = ()
    plan: Plan | None = None
    schedule: Schedule | None = field(default=None, compare=False)
    memory_curves: "Sequence[MemoryCurve]" = field(default=(), compare=False)
    links: "Sequence[LinkLoad]" = field(default=(), compare=False)
    setup: Any = field(default=None, compare=False)

    @property
    def columns(self) -> dict[str, Any]:
        """The result's figures as columns of a sweep's table (`columns_of`)."""
        names = (*_COLUMNS, "breakdown", "memory_per_gpu")
        return columns_of({name: getattr(self, name) for name in names})

    @property
    def misfit(self) -> str:
        return misfit_of(self.fits, self.memory_per_gpu["total"], self.capacity)


def columns_of(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a sweep's table, from fields of a result; seconds by cause and bytes by
    part have a prefix."""
    named = {name: figures[name] for name in _COLUMNS}
    seconds = {f"seconds.{cause}": value for cause, value in figures["breakdown"].items()}
    memory = {f"memory.{part}": size for part, size in figures["memory_per_gpu"].items()}
    return named | seconds | memory


def misfit_of(fits: bool | None, held: float, capacity: float) -> str:
    """Why a job that needs `held` bytes on a GPU would not run; empty if it would."""
    if fits is None:
        return "needs an unknown amount of memory"
    return "" if fits else f"needs {held / 2**30:.1f} GiB, but has {capacity / 2**30:.1f} GiB"
