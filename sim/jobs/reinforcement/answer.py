"""The answer of a scenario with a `[reinforcement]` table."""

from dataclasses import asdict, field
from typing import TYPE_CHECKING, Any

from sim.config.dataclass import dataclass
from sim.results.answer import JobAnswer

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """A step of the trainer: its seconds, and by cause (`spent`); `generation` are those from the
    beginning of its first group to its last answer, `tail` those in which less than a tenth of its
    answers were still being written; `tokens` of its answers, the `longest` of these, and the mean
    `staleness` of its answers."""

    number: int
    begin: float
    seconds: float
    spent: dict[str, float]
    generation: float
    tail: float
    tokens: int
    longest: int
    staleness: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """GPUs of one side: the share of the time in which they are `idle`, the `tokens_per_second` of
    all of them together, bytes by part (`held`) of the fullest GPU, of which it has `room`."""

    name: str
    gpus: int
    idle: float
    tokens_per_second: float
    held: dict[str, float] = field(default_factory=dict)
    room: float = 0.0

    @property
    def fits(self) -> bool:
        return sum(self.held.values()) <= self.room


@dataclass(frozen=True, slots=True, kw_only=True)
class ReinforcementAnswer(JobAnswer):
    """A loop of generation and training, in the mean of its steps behind the first ones.

    `step_time` is from one step to the next (s), `spent` the trainer's seconds by cause, which add
    up to it: what it waits for is exposed. `generation` and `tail` are those of the steps' rows.
    `tokens_per_second` counts prompts and answers that are learnt from, of all GPUs; `samples` are
    answers of a step, `mean_length` their mean tokens with prompts. `staleness` are the shares of
    answers that are so many versions old when they are learnt from, by their first token; `mixed`
    the share of answers that several versions wrote. `lost` is the share of written tokens that are
    not learnt from, `cut` the share of answers that end at the cap, `running` the answers on
    servers from some moments (s) on. `dollars` are those of a step, None where the topology has no
    price.
    """

    view = "sim.interface.views.reinforcement"
    picture = "sim.interface.plots.reinforcement"
    comparison = "sim.analysis.comparison.figures:FigureComparison"
    unwritten = ("timeline",)

    mode: str
    placement: str
    step_time: float
    spread: float
    spent: dict[str, float]
    generation: float
    tail: float
    samples: int
    samples_per_second: float
    tokens_per_second: float
    staleness: dict[str, float]
    mixed: float
    lost: float
    cut: float
    mean_length: float
    dollars: float | None
    weights: dict[str, float]
    pools: tuple[Pool, ...]
    steps: tuple[StepRow, ...]
    running: tuple[tuple[float, int], ...] = ()

    @property
    def columns(self) -> dict[str, Any]:
        """Figures of a sweep's row."""
        names = ("step_time", "generation", "samples_per_second", "tokens_per_second")
        figures: dict[str, Any] = {name: getattr(self, name) for name in names}
        sides = zip(("training", "servers"), self.pools, strict=True)
        figures |= {f"idle.{side}": pool.idle for side, pool in sides}
        return figures | {"stale": self.stale, "lost": self.lost, "dollars": self.dollars}

    @property
    def stale(self) -> float:
        """The mean staleness of the answers (versions)."""
        return sum(int(age) * share for age, share in self.staleness.items())

    @property
    def cost(self) -> tuple[str, float]:
        """What the best of several loops has least of."""
        return "a thousand answers that are learnt from", 1000.0 * self.step_time / self.samples

    @property
    def account(self) -> tuple[str, dict[str, float]]:
        """The trainer's seconds by cause."""
        scale = 1000.0 / self.samples
        spent = {cause: seconds * scale for cause, seconds in self.spent.items()}
        return "The trainer's seconds for a thousand answers", spent

    @property
    def misfit(self) -> str:
        bad = next((pool for pool in self.pools if not pool.fits), None)
        return f"{bad.name} need more memory than their GPUs have" if bad else ""

    @property
    def memory_per_gpu(self) -> dict[str, float]:
        """Bytes of the fullest GPU."""
        return {"total": max(sum(pool.held.values()) for pool in self.pools)}

    @property
    def capacity(self) -> float:
        """Bytes that it has."""
        return self.pools[0].room

    @property
    def tokens_per_gpu(self) -> float:
        """Tokens a second of each GPU."""
        return self.tokens_per_second / self.inputs.gpus

    def to_frame(self) -> "pd.DataFrame":
        """One row a step."""
        import pandas as pd

        rows = [asdict(step) for step in self.steps]
        return pd.DataFrame([{**row, **row.pop("spent")} for row in rows])
