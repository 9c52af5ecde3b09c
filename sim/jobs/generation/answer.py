"""The answer of a scenario with `[generation]`."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar

import numpy as np

from sim.config.dataclass import dataclass
from sim.results.answer import JobAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The distribution of answers' seconds, or of their numbers of tokens."""

    mean: float
    median: float
    p95: float
    longest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """The distribution of some values, at least one.

        >>> Spread.of([1.0, 3.0])
        Spread(mean=2.0, median=2.0, p95=2.9, longest=3.0)
        """
        array = np.asarray(values, dtype=float)
        middle, high = (round(float(np.quantile(array, share)), 12) for share in (0.5, 0.95))
        return cls(mean=float(array.mean()), median=middle, p95=high, longest=float(array.max()))


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The state of all servers from the moment `at` on (s): `batch` sequences in their batches, and
    the share `cache` of their caches that is held."""

    at: float
    batch: int
    cache: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated(JobAnswer):
    """Answers to prompts.

    `time` is the moment of the last token (s). `tokens` counts the tokens of the answers,
    `prompt_tokens` the computed tokens of prompts. A shared prompt counts once. A sequence
    that lost its cache (`preempted` times) is computed and counted again. `first` is the time to
    the first token (TTFT), `each` the time of every further token (TPOT), `whole` the time of an
    answer (s); `lengths` are the answers' numbers of tokens.

    `batch` is the mean number of sequences in the batch of a server that has work. `cache` is the
    mean held share of its cache, `fullest` the largest. `idle` is the share of the servers' time
    without work; `tail` is the share of the run after the first server runs out of work. `step` has
    the seconds by part of a decode step with the mean batch and cache; `limit` names the largest
    part. `memory` has the bytes of a GPU by part; `room` is its memory. `course` has the states of
    all servers together.
    """

    view = "sim.interface.views.generation"
    picture = "sim.interface.plots.generation"
    comparison = "sim.analysis.comparison.figures:FigureComparison"
    units: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("time", "first", "each"), "s"),
        **{"cache": "%", "idle": "%", "dollars_per_million": "USD"},
    }
    unwritten = ("timeline",)
    derived = ("tokens_per_second", "tokens_per_second_per_gpu")
    frame_rows = "course"

    servers: int
    answers: int
    time: float
    tokens: int
    prompt_tokens: int
    preempted: int
    first: Spread
    each: Spread | None
    whole: Spread
    lengths: Spread
    batch: float
    cache: float
    fullest: float
    idle: float
    tail: float
    step: dict[str, float]
    limit: str
    memory: dict[str, float]
    room: float
    cache_tokens: int
    dollars_per_million: float | None = None
    course: tuple[State, ...] = field(default=(), repr=False)

    @property
    def cost(self) -> tuple[str, float]:
        """The GPU-seconds of a million tokens, and their description."""
        return "of a GPU for a million tokens", 1e6 / self.tokens_per_second_per_gpu

    @property
    def account(self) -> tuple[str, dict[str, float]]:
        return "A decode step with the mean batch and cache", self.step

    @property
    def updates(self) -> int:
        """The number of updates: 1, as all answers together are a single piece of work."""
        return 1

    @property
    def tokens_per_second(self) -> float:
        """Tokens of answers a second."""
        return self.tokens / self.time

    @property
    def tokens_per_second_per_gpu(self) -> float:
        return self.tokens_per_second / self.inputs.gpus

    @property
    def columns(self) -> dict[str, Any]:
        """The figures of a sweep's row."""
        names = ("time", "tokens_per_second", "tokens_per_second_per_gpu", "batch", "cache")
        figures: dict[str, Any] = {name: getattr(self, name) for name in names}
        figures |= {"first.median": self.first.median, "first.p95": self.first.p95}
        figures["each.median"] = self.each.median if self.each else None
        others = {"preempted": self.preempted, "idle": self.idle, "limit": self.limit}
        return figures | others | {"dollars_per_million": self.dollars_per_million}
