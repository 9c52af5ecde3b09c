"""The answer to a simulation: numbers with the field's names, ready for JSON, text and Jupyter."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

from sim.config.dataclass import dataclass
from sim.parallel.plan import Plan
from sim.program.schedule import Schedule
from sim.results.answer import JobAnswer

if TYPE_CHECKING:
    import pandas as pd

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

    `step_time` (s) splits into `breakdown` (seconds by cause, of the critical rank, adding up to
    it). Of a measured one `step_time_expected` is the median and it lies between `step_time_low`
    and `step_time_high` with the probability `interval["level"]`, by what measured runs have shown
    (`sim.uncertainty.intervals`); all other figures are those of the simulated step. `mfu` is
    model FLOPs / (step time x GPUs x dense peak of the GEMMs' precision), attention counted in full
    also where it is causal (PaLM's convention); `mfu_of_peaks` has it by the precision of the
    peak, that of half precision, too, where products have 8 bits. `hfu` is the same of the FLOPs
    that are executed: what is recomputed counts again, what a causal mask hides does not, so that
    it is the lower of the two where fused attention skips more than is recomputed. Samples
    and tokens a second are 0 where a recorded script does not show them. `memory_per_gpu` holds the
    parts of the worst rank (bytes) and their `total`; `capacity` is what that GPU offers,
    `host_memory` what the fullest node holds for its GPUs (offload); `memory_curves` has one over
    the step for each stage, `links` what each class of links carries. `setup` is what was simulated
    (`sim.kind.Setup`).
    `remedies` are changes of the plan that fit, where it does not.
    `parameters` are the model's, a tied embedding once, `active_parameters` those that one token
    meets. `stages` has one row a pipeline stage, with the seconds of its slowest rank. Where the
    order of passes was looked for, `gains` says by what share of the step fixed schedules would
    take longer. Where pipelines do not drain, `staleness` says for each stage how many updates its
    gradients are late at most.
    `dropped` is the share of the tokens that their experts have no room for.
    `critical_path` has a row for each stage and cause on the chain of work that the step consists
    of (`sim.engine.critical_path`); their `seconds` add up to it. `hidden` are seconds of the
    critical rank's transfers, by cause, that it did not wait for. With a loader, `loading` says how
    many seconds the step `waits` for samples, which kind of link is their `limit`, and how many
    seconds they (`seconds`) and all traffic (`busy`) take there.
    `device_time` says what share of the kernels' seconds comes from a "profile" and from the
    "model". `straggler_seconds` is what the step takes longer than with no rank or link slow.
    `engine` is what played the step, "clock" or "replay", and `wall_seconds` what the simulation
    itself took, no part of the answer. `dollars_per_million_tokens` is rent, where the topology
    has a price.
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
        """Seconds by cause and bytes by part are prefixed."""
        names = (*_COLUMNS, "breakdown", "memory_per_gpu")
        return columns_of({name: getattr(self, name) for name in names})

    @property
    def misfit(self) -> str:
        return misfit_of(self.fits, self.memory_per_gpu["total"], self.capacity)

    def to_frame(self) -> "pd.DataFrame":
        """The timeline as a table, one row a span."""
        return self.timeline.to_frame()


def columns_of(figures: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a sweep's table, from fields of a result; seconds by cause and bytes by part
    are prefixed."""
    named = {name: figures[name] for name in _COLUMNS}
    seconds = {f"seconds.{cause}": value for cause, value in figures["breakdown"].items()}
    memory = {f"memory.{part}": size for part, size in figures["memory_per_gpu"].items()}
    return named | seconds | memory


def misfit_of(fits: bool | None, held: float, capacity: float) -> str:
    """Why a job that holds so many bytes on a GPU would not run; empty if it would."""
    if fits is None:
        return "takes an unknown share of its memory"
    return "" if fits else f"takes {held / 2**30:.1f} GiB of {capacity / 2**30:.1f} GiB a GPU"
