"""First-order optimizers on numpy vectors: pure steps from (weights, gradient, state).

All optimizers follow the conventions of torch.optim, so a run can be repeated with torch.
"""

from collections.abc import Iterator
from math import cos, inf, pi, sqrt
from typing import Any, Literal

import numpy as np

from sim.config.dataclass import dataclass
from sim.jobs.sharing.learning.deferred import applied
from sim.jobs.sharing.learning.task import Vector

State = tuple[Any, ...]  # the number of steps made, and vectors
Rule = Literal["sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adam", "lars", "lamb"]
Layers = tuple[tuple[int, bool], ...]
Schedule = Literal["constant", "step", "cosine", "inverse-root"]

_MEMORIES: dict[str, int] = {"sgd": 0, "adam": 2, "lamb": 2}  # vectors of state; other rules: 1
_BY_LAYER = ("lars", "lamb")


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """A rule and its constants; `state` starts at zero. A step of a rule turns weights w and their
    gradient g into new weights. r is the learning rate, m and s are vectors of state.

    - sgd: w - r g (Robbins and Monro 1951).
    - momentum: m = beta m + g; w - r m (Polyak 1964). `nesterov`: w - r (g + beta m) (Nesterov
      1983, in the form of Sutskever et al. 2013).
    - adagrad: s = s + g^2; w - r g / (sqrt(s) + eps) (Duchi et al. 2011).
    - rmsprop: s = decay s + (1 - decay) g^2; w - r g / (sqrt(s) + eps) (Tieleman, Hinton 2012).
    - adam: m = beta m + (1 - beta) g; s = decay s + (1 - decay) g^2; w - r m' / (sqrt(s') + eps),
      where m' and s' are corrected for their start at zero (Kingma and Ba 2015).
    - lars: m = beta m + r trust |w| / (|g| + l |w|) (g + l w); w - m, layer by layer (You, Gitman
      and Ginsburg 2017, arXiv 1708.03888).
    - lamb: with u = Adam's direction + l w, w - r u |w| / |u|, layer by layer (You et al. 2020,
      arXiv 1904.00962).

    l is `weight_decay`; the rules before lars add l w to the gradient. `layers` has the size of
    each layer's part of the vector, and whether its steps are scaled. Biases and norms, which are
    vectors, are not scaled (facebookresearch/mae, util/lars.py), nor are parts that are zero. In
    the first `warmup` steps the rate climbs from `start_rate` to r in equal steps (Goyal et al.
    2017). In step t after the warm-up, the schedules give these rates:
    - constant: r. step: r / 10^floor(t / `span`) (He et al. 2016, section 3.4).
    - cosine: r (1 + cos(pi t / `span`)) / 2, and 0 after the span (Loshchilov and Hutter 2017).
    - inverse-root: r sqrt(`warmup` / (`warmup` + t)) (Vaswani et al. 2017, equation 3).

    >>> rule = Optimizer(rule="momentum", rate=0.1, beta=0.5)
    >>> weights, state = rule.step(np.zeros(1), np.ones(1), rule.start(1))
    >>> weights, state = rule.step(weights, np.ones(1), state)
    >>> weights
    array([-0.25])
    """

    rule: Rule = "sgd"
    rate: float = 0.1
    beta: float = 0.9
    decay: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    trust: float = 1e-3
    layers: Layers = ()
    warmup: int = 0
    start_rate: float = 0.0
    schedule: Schedule = "constant"
    span: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.rate < inf:
            raise ValueError(f"rate = {self.rate} must be positive; e.g. 0.1")
        if not (0 <= self.beta < 1 and 0 <= self.decay < 1):
            raise ValueError("beta and decay must lie in [0, 1); e.g. 0.9")

    def start(self, size: int) -> State:
        """The state before the first step, for `size` weights."""
        return (0, *(np.zeros(size) for _ in range(_MEMORIES.get(self.rule, 1))))

    def rate_of(self, step: int) -> float:
        """The rate of a step; steps count from 0.

        >>> warm = Optimizer(rate=0.8, warmup=4, start_rate=0.4)
        >>> [round(warm.rate_of(step), 3) for step in range(6)]
        [0.5, 0.6, 0.7, 0.8, 0.8, 0.8]
        >>> fall = Optimizer(rate=0.8, schedule="cosine", span=4)
        >>> [round(fall.rate_of(step), 3) for step in (0, 2, 9)]
        [0.8, 0.4, 0.0]
        """
        since = step + 1 - max(self.warmup, 1)
        if since < 0:
            return self.start_rate + (self.rate - self.start_rate) * (step + 1) / self.warmup
        if self.schedule == "step":
            return self.rate * float(0.1 ** (since // self.span))
        if self.schedule == "cosine":
            return self.rate * (1 + cos(pi * min(since / self.span, 1.0))) / 2
        if self.schedule == "inverse-root":
            return self.rate * sqrt(self.warmup / (self.warmup + since))
        return self.rate

    def step(self, weights: Vector, gradient: Vector, state: State) -> tuple[Vector, State]:
        """Weights and state after one step; nothing is changed in place."""
        steps, *memory = state
        if self.weight_decay and self.rule not in _BY_LAYER:
            gradient = gradient + self.weight_decay * weights
        moved, kept = self._moved(weights, gradient, memory, steps)
        return weights - moved, (steps + 1, *kept)

    def _moved(
        self, weights: Vector, gradient: Vector, memory: list[Vector], steps: int
    ) -> tuple[Vector, tuple[Vector, ...]]:
        """The change that is subtracted from the weights, and the new vectors of state."""
        rate = self.rate_of(steps)
        if self.rule == "sgd":
            return rate * gradient, ()
        if self.rule in ("adam", "lamb"):
            direction, kept = self._of_moments(gradient, memory, steps + 1)
            if self.rule == "lamb":
                direction = applied(self._scaled, weights, direction)
            return rate * direction, kept
        if self.rule == "lars":
            moment = self.beta * memory[0] + rate * applied(self._scaled, weights, gradient)
            return moment, (moment,)
        if self.rule in ("momentum", "nesterov"):
            moment = self.beta * memory[0] + gradient
            ahead = gradient + self.beta * moment if self.rule == "nesterov" else moment
            return rate * ahead, (moment,)
        squares = memory[0] + gradient**2
        if self.rule == "rmsprop":
            squares = self.decay * memory[0] + (1.0 - self.decay) * gradient**2
        return rate * gradient / (np.sqrt(squares) + self.epsilon), (squares,)

    def _of_moments(
        self, gradient: Vector, memory: list[Vector], steps: int
    ) -> tuple[Vector, tuple[Vector, ...]]:
        """Adam's direction, and its new moments."""
        first = self.beta * memory[0] + (1.0 - self.beta) * gradient
        second = self.decay * memory[1] + (1.0 - self.decay) * gradient**2
        mean = first / (1.0 - self.beta**steps)
        size = np.sqrt(second / (1.0 - self.decay**steps))
        return mean / (size + self.epsilon), (first, second)

    def _scaled(self, weights: Vector, direction: Vector) -> Vector:
        """A direction plus weight decay, each layer scaled to the length of its weights (LAMB).

        LARS scales a layer by `trust` |w| / (|g| + l |w|) instead."""
        scaled = direction + self.weight_decay * weights
        for part in self._scaled_parts(weights.size):
            weight_norm = float(np.linalg.norm(weights[part]))
            length = float(np.linalg.norm(scaled[part]))
            if self.rule == "lars":
                length = float(np.linalg.norm(direction[part])) + self.weight_decay * weight_norm
            if weight_norm and length:
                scaled[part] *= (self.trust if self.rule == "lars" else 1.0) * weight_norm / length
        return scaled

    def _scaled_parts(self, size: int) -> Iterator[slice]:
        first = 0
        for length, scaled in self.layers or ((size, True),):
            if scaled:
                yield slice(first, first + length)
            first += length


class Steps:
    """An optimizer with its state, which every step changes."""

    def __init__(self, optimizer: Optimizer, size: int) -> None:
        self.optimizer = optimizer
        self.state: State = optimizer.start(size)

    def step(self, weights: Vector, gradient: Vector) -> Vector:
        weights, self.state = self.optimizer.step(weights, gradient, self.state)
        return weights
