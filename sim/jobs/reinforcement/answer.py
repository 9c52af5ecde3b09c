"""The answer of a scenario with a `[reinforcement]` table."""

from collections.abc import Mapping
from dataclasses import asdict, field
from typing import Any, ClassVar

from sim.config.dataclass import dataclass
from sim.results.answer import JobAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """A step of the trainer: its `seconds`, in all and by cause (`spent`). `generation` is the time
    (s) from the beginning of the step's first group of answers to the end of its last answer. In
    the last `tail` seconds of this time, at most a tenth of the answers were still being written.
    `tokens` counts the tokens of answers and prompts, `longest` those of the longest answer.
    `staleness` is the answers' mean age (versions)."""

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
    """The GPUs of the trainer or of the servers. They are `idle` for a share of all time. At work
    (the trainer in updates, servers in steps), they handle `tokens_per_second` in all. `held`
    divides the bytes on the fullest GPU by part; a GPU has room for `room` bytes."""

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
    """A loop of generation and training; figures are means over its steps after the warm-up.

    `step_time` is the time from one step to the next (s). `spent` are the trainer's seconds by
    cause, which add up to `step_time`; the trainer's waits count as exposed time. `generation` and
    `tail` are means of the rows in `steps`. `tokens_per_second` counts the prompts and answers that
    all GPUs learn from. `samples` is the number of answers of a step, `mean_length` their mean
    tokens with prompts. `staleness` maps ages to shares of the answers. An answer's age is counted
    when the trainer learns from it: the versions of the weights since its first token. `mixed` is
    the share of answers that several versions wrote. `lost` is the share of written tokens from
    which the trainer does not learn, `cut` the share of answers that end at the cap. `running` has
    pairs: a moment (s), and the number of answers on servers from that moment on. `dollars` is the
    price of a step, None where the topology has no price.
    """

    view = "sim.interface.views.reinforcement"
    picture = "sim.interface.plots.reinforcement"
    comparison = "sim.analysis.comparison.figures:FigureComparison"
    units: ClassVar[Mapping[str, str]] = {
        **{"step_time": "s", "generation": "s", "idle": "%", "lost": "%", "dollars": "USD"}
    }
    unwritten = ("timeline",)
    frame_rows = "rows"

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
        """The figures of a sweep's row."""
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
        """Description and value (s for 1,000 answers) of the cost by which loops are ranked."""
        return "for a thousand answers that are learnt from", 1000.0 * self.step_time / self.samples

    @property
    def account(self) -> tuple[str, dict[str, float]]:
        """The trainer's seconds by cause, for a thousand answers."""
        scale = 1000.0 / self.samples
        spent = {cause: seconds * scale for cause, seconds in self.spent.items()}
        return "The trainer's seconds for a thousand answers", spent

    @property
    def misfit(self) -> str:
        bad = next((pool for pool in self.pools if not pool.fits), None)
        return f"{bad.name}: more memory is needed than a GPU has" if bad else ""

    @property
    def memory_per_gpu(self) -> dict[str, float]:
        """The bytes that the fullest GPU holds."""
        return {"total": max(sum(pool.held.values()) for pool in self.pools)}

    @property
    def capacity(self) -> float:
        """The bytes of memory of a GPU."""
        return self.pools[0].room

    @property
    def tokens_per_gpu(self) -> float:
        """Tokens per second and GPU."""
        return self.tokens_per_second / self.inputs.gpus

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each step, with its seconds by cause."""
        return [{**row, **row.pop("spent")} for row in map(asdict, self.steps)]
