"""First-order optimizers on numpy vectors: pure steps from (weights, gradient, state).

All follow torch.optim's conventions, so that a run here can be repeated there.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
State = tuple[Vector, ...]
Rule = Literal["sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adam"]

_MEMORIES: dict[str, int] = {"sgd": 0, "adam": 3}  # vectors of state; 1 for all others


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """A rule and its constants; `state` starts at zero.

    - sgd: w - r g (Robbins and Monro 1951).
    - momentum: m = beta m + g; w - r m (Polyak 1964). `nesterov`: w - r (g + beta m) (Nesterov
      1983, in the form of Sutskever et al. 2013).
    - adagrad: s = s + g^2; w - r g / (sqrt(s) + eps) (Duchi et al. 2011).
    - rmsprop: s = decay s + (1 - decay) g^2; w - r g / (sqrt(s) + eps) (Tieleman, Hinton 2012).
    - adam: both moments, corrected for their start at zero (Kingma and Ba 2015, algorithm 1).

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

    def __post_init__(self) -> None:
        if not 0 < self.rate < float("inf"):
            raise ValueError(f"rate = {self.rate} must be positive; e.g. 0.1")
        if not (0 <= self.beta < 1 and 0 <= self.decay < 1):
            raise ValueError("beta and decay must lie in [0, 1); e.g. 0.9")

    def start(self, size: int) -> State:
        """The state before the first step, for so many weights."""
        return tuple(np.zeros(size) for _ in range(_MEMORIES.get(self.rule, 1)))

    def step(self, weights: Vector, gradient: Vector, state: State) -> tuple[Vector, State]:
        """Weights and state after one step; nothing is changed in place."""
        if self.rule == "sgd":
            return weights - self.rate * gradient, state
        if self.rule == "adam":
            return self._adam(weights, gradient, state)
        if self.rule in ("momentum", "nesterov"):
            moment = self.beta * state[0] + gradient
            ahead = gradient + self.beta * moment if self.rule == "nesterov" else moment
            return weights - self.rate * ahead, (moment,)
        squares = state[0] + gradient**2
        if self.rule == "rmsprop":
            squares = self.decay * state[0] + (1.0 - self.decay) * gradient**2
        return weights - self.rate * gradient / (np.sqrt(squares) + self.epsilon), (squares,)

    def _adam(self, weights: Vector, gradient: Vector, state: State) -> tuple[Vector, State]:
        first, second, steps = state
        steps = steps + 1.0
        first = self.beta * first + (1.0 - self.beta) * gradient
        second = self.decay * second + (1.0 - self.decay) * gradient**2
        mean = first / (1.0 - self.beta**steps)
        size = np.sqrt(second / (1.0 - self.decay**steps))
        return weights - self.rate * mean / (size + self.epsilon), (first, second, steps)
