"""Training with stale gradients: what a pipeline that does not drain does to a learning task.

Stage s of p holds the s-th of p equal shares of the weights, and its gradient is computed on
weights that are d_s updates old (`Result.staleness`), forward and backward:

    w(t+1) = w(t) - rate * grad f(w_0(t - d_0), ..., w_{p-1}(t - d_{p-1}))

(Narayanan et al. 2019, doi 10.1145/3341301.3359646: d_s = p - s - 1; Narayanan et al.
2021, arXiv 2006.09503: d_s = 1). Any other rule takes that gradient in the same way.
Before the first update all weights are those of the start.
"""

from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np

from sim.sharing.learning.optimizers import Optimizer
from sim.sharing.learning.task import LearningTask, Vector


def stale_weights(
    task: LearningTask, optimizer: Optimizer, staleness: Sequence[int], updates: int
) -> Iterator[Vector]:
    """The weights after each update; without staleness, (0,), those of synchronous training.

    >>> from sim.sharing.learning.quadratic import Quadratic
    >>> rule, task = Optimizer(rate=0.5), Quadratic(size=2, condition=1.0, noise=0.0)
    >>> [weights.tolist() for weights in stale_weights(task, rule, (1, 0), 2)]
    [[0.5, 0.5], [1.0, 0.75]]
    """
    weights, state = task.start, optimizer.start(len(task.start))
    versions = deque([weights] * (1 + max(staleness)), maxlen=1 + max(staleness))
    ends = np.arange(1, len(staleness)) * len(weights) // len(staleness)
    for step in range(updates):
        shares = (np.split(versions[-1 - late], ends)[s] for s, late in enumerate(staleness))
        gradient = task.gradient(np.concatenate(list(shares)), 0, step)
        weights, state = optimizer.step(weights, gradient, state)
        versions.append(weights)
        yield weights
