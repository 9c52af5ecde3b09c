"""Does a pipeline that never drains train sooner, although its gradients come late?

    python scenarios/pipedream_staleness.py [SCENARIO] [--picture pipedream_staleness.png]

A schedule's step time and staleness are those of the scenario's job; the loss is a small
perceptron's, which learns from as many samples an update, stage by stage on weights that are as
many updates old, at the best of some rates. It is the trade that is shown, not a language model's
loss.
"""

import argparse
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

import sim
from sim.config.files import atomic_write
from sim.jobs.sharing.learning.numpy_tasks import Perceptron
from sim.jobs.sharing.learning.optimizers import Optimizer
from sim.jobs.sharing.learning.task import LearningTask, Vector

SCHEDULES = ("1f1b", "pipedream-2bw", "pipedream")
RATES = (0.25, 0.5, 1.0, 2.0)
TARGET = 0.1
SAMPLES = 20_000

Curve = list[tuple[float, float]]


def main() -> None:
    asked = arguments()
    whole = sim.load(asked.scenario).plan
    print(f"{asked.scenario}: until a perceptron's loss is {TARGET}")
    print(f"{'schedule':<15}{'samples/s':>11}{'staleness':>11}{'rate':>6}{'samples':>9}{'time':>9}")
    curves = {}
    for name in SCHEDULES:
        batch = whole.microbatch if name == "pipedream" else whole.global_batch
        settings = {"plan.schedule": name, "plan.global_batch": batch}
        result = sim.run(sim.load(asked.scenario, settings))
        late = result.staleness or (0,)
        runs = {rate: curve(late, rate, batch) for rate in RATES}
        rate = min(runs, key=lambda own: reached(runs[own]))
        samples = reached(runs[rate])
        print(
            f"{name:<15}{result.samples_per_second:>11.1f}{max(late):>11}{rate:>6}"
            f"{samples:>9,.0f}{samples / result.samples_per_second:>7.0f} s"
        )
        curves[name] = [(n / result.samples_per_second, loss) for n, loss in runs[rate]]
    draw(curves, asked.picture)
    print(f"wrote {asked.picture}")


def curve(late: tuple[int, ...], rate: float, batch: int) -> Curve:
    """Samples and loss on the way."""
    task, count = Perceptron(batch=batch), SAMPLES // batch
    weights = enumerate(stale_weights(task, Optimizer(rate=rate), late, count), 1)
    every = max(count // 100, 1)
    return [(n * batch, task.loss(own)) for n, own in weights if n % every == 0]


def reached(curve: Curve) -> float:
    """After how many samples the loss is as low as asked."""
    return next((samples for samples, loss in curve if loss < TARGET), np.inf)


def draw(curves: dict[str, Curve], path: Path) -> None:
    from matplotlib.figure import Figure

    fig = Figure(figsize=(7.0, 4.2), layout="constrained")
    axes = fig.add_subplot()
    for name, own in curves.items():
        axes.semilogy(*zip(*own, strict=True), label=name)
    axes.set(xlabel="simulated time (s)", ylabel="loss")
    axes.spines[["right", "top"]].set_visible(False)
    axes.legend(frameon=False)
    with atomic_write(path) as part:
        fig.savefig(part, dpi=120)


def stale_weights(
    task: LearningTask, optimizer: Optimizer, staleness: Sequence[int], updates: int
) -> Iterator[Vector]:
    """The weights after each update; without staleness, (0,), those of synchronous training.

    Stage s of p holds the s-th of p equal shares of the weights, and its gradient is computed on
    weights that are d_s updates old (`Result.staleness`), forward and backward:

        w(t+1) = w(t) - rate * grad f(w_0(t - d_0), ..., w_{p-1}(t - d_{p-1}))

    (Narayanan et al. 2019, doi 10.1145/3341301.3359646: d_s = p - s - 1; Narayanan et al. 2021,
    arXiv 2006.09503: d_s = 1). Before the first update all weights are those of the start.

    >>> from sim.jobs.sharing.learning.numpy_tasks import Quadratic
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


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Verbatim)
    parser.add_argument("scenario", nargs="?", default="pipedream-2bw")
    parser.add_argument("--picture", type=Path, default=Path("pipedream_staleness.png"))
    return parser.parse_args()


_Verbatim = argparse.RawDescriptionHelpFormatter

if __name__ == "__main__":
    main()
