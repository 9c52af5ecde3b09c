"""Statistical efficiency: the steps and samples to a target loss, as functions of the batch size.

McCandlish et al. 2018 (arXiv 1812.06162). A batch of B samples needs S steps and E = B S samples:

    S = S_min (1 + B_crit / B)    E = E_min (1 + B / B_crit)    B_crit = E_min / S_min

so (S / S_min - 1) (E / E_min - 1) = 1. B_crit is near the simple noise scale of the gradient,
tr(Sigma) / |G|^2. Sigma is the covariance of a single sample's gradient, G is the true gradient.
The simple noise scale equals the paper's noise scale if the loss has the same curvature in all
directions.
"""

from collections.abc import Iterable
from math import inf

import numpy as np

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.jobs.sharing.learning.optimizers import Optimizer, Steps
from sim.jobs.sharing.learning.task import LearningTask, Vector

_PLACES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """The curve of a task and a target: `critical_batch` (samples) and `least_samples`, E_min.

    For a large model the user states a known curve (`scenarios/gpt2-1.5b-workers.toml` has a
    published curve).

    >>> curve = Efficiency(critical_batch=1000.0, least_samples=1e6)
    >>> curve.least_steps, curve.steps(1000.0), curve.samples(1000.0)
    (1000.0, 2000.0, 2000000.0)
    """

    critical_batch: float
    least_samples: float

    def __post_init__(self) -> None:
        for key in ("critical_batch", "least_samples"):
            value = getattr(self, key)
            if not 0.0 < value < inf:
                fault = f"{key} = {value:g} is no number of samples"
                raise InputError("sharing.efficiency", fault, "give a positive number, e.g. 1e6")

    @property
    def least_steps(self) -> float:
        """S_min: the number of steps with infinitely large batches."""
        return self.least_samples / self.critical_batch

    def steps(self, batch: float) -> float:
        """Return S, the number of steps with `batch` samples a step."""
        return self.least_steps * (1.0 + self.critical_batch / batch)

    def samples(self, batch: float) -> float:
        """Return E, the number of samples with `batch` samples a step."""
        return self.least_samples * (1.0 + batch / self.critical_batch)

    @classmethod
    def through(cls, critical_batch: float, batch: float, samples: float) -> "Efficiency":
        """Return the curve with this critical batch for which a run with batches of `batch` samples
        needs `samples` samples to its target."""
        least = samples / (1.0 + batch / critical_batch)
        return cls(critical_batch=critical_batch, least_samples=least)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseScale:
    """Unbiased estimates of |G|^2 (`signal`) and of one sample's tr(Sigma) (`noise`)."""

    signal: float
    noise: float

    @property
    def batch(self) -> float:
        """tr(Sigma) / |G|^2, in samples; infinite if there is no signal."""
        return max(self.noise, 0.0) / self.signal if self.signal > 0.0 else inf


def noise_scale(
    task: LearningTask, places: Iterable[Vector], batch: int, *, workers: int = 32, draws: int = 8
) -> NoiseScale:
    """The mean signal and noise at the weights `places`, from gradients of batches.

    A draw has the gradients g_i of n = `workers` batches of B = `batch` samples (small batches) and
    their mean g_mean (a large batch). As in the paper's appendix, both estimates are averaged
    before division:

        |G|^2 = (n B |g_mean|^2 - B mean |g_i|^2) / (n B - B)
        tr(Sigma) = (mean |g_i|^2 - |g_mean|^2) / (1 / B - 1 / (n B))

    >>> from sim.jobs.sharing.learning.numpy_tasks import Quadratic
    >>> task = Quadratic(size=4, condition=1.0, noise=0.5)  # tr(Sigma) = 1 and |G|^2 = 4
    >>> round(noise_scale(task, [task.start], 1, workers=200, draws=20).batch, 2)
    0.25
    """
    signals, noises, large = [], [], workers * batch
    for place in places:
        for draw in range(draws):
            each = np.stack([task.gradient(place, rank, draw) for rank in range(workers)])
            of_one = float(np.mean(np.sum(each**2, axis=1)))
            of_all = float(np.sum(each.mean(axis=0) ** 2))
            signals.append((large * of_all - batch * of_one) / (large - batch))
            noises.append((of_one - of_all) / (1.0 / batch - 1.0 / large))
    return NoiseScale(signal=float(np.mean(signals)), noise=float(np.mean(noises)))


def efficiency_of(
    task: LearningTask,
    optimizer: Optimizer,
    target: float,
    *,
    batch: int,
    workers: int,
    most: int = 10_000,
) -> Efficiency:
    """The curve of a task, from synchronous training with all workers' batches up to the target.

    The critical batch is the noise scale at up to sixteen places on the way. Raises `InputError`
    if `most` steps do not reach the target, or if the estimated noise or signal is not positive."""
    weights, own, passed = task.start, Steps(optimizer, task.start.size), [task.start]
    while not task.loss(weights) <= target:
        if len(passed) > most:
            fault = f"the loss is not {target:g} after {most:,} steps of {workers} workers"
            raise InputError("sharing.learning.target", fault, "raise it, or change the rate")
        step = len(passed)
        slope = np.mean([task.gradient(weights, rank, step) for rank in range(workers)], axis=0)
        weights = own.step(weights, slope)
        passed.append(weights)
    steps = max(1, len(passed) - 1)
    places = passed[: steps : -(-steps // _PLACES)]
    scale = noise_scale(task, places, batch)
    if not 0.0 < scale.batch < inf:
        fault = "gradients without noise, or of noise alone, have no critical batch"
        raise InputError("sharing.learning", fault, "give the curve, or another target")
    return Efficiency.through(scale.batch, workers * batch, steps * workers * batch)
