"""The task that a `[sharing.learning]` table names, or the user's own instead."""

from typing import Any

from sim.jobs.sharing.learning.classifiers import Logistic, Perceptron
from sim.jobs.sharing.learning.modules import characters, digits, residual
from sim.jobs.sharing.learning.own_task import Task, own_task
from sim.jobs.sharing.learning.quadratic import Quadratic
from sim.jobs.sharing.learning.task import LearningTask, NoTask
from sim.jobs.sharing.tables import Learning

_MODULES = {"digits": digits, "residual": residual, "characters": characters}


def task_of(
    learning: Learning | None, workers: int, *, batch: int, seed: int, own: Task | None = None
) -> LearningTask:
    """The task of so many workers, each with batches of so many samples; `own` comes first."""
    common: dict[str, Any] = {"workers": workers, "seed": seed, "batch": batch}
    if own is not None:
        options = learning or Learning()
        return own_task(own, size=options.size, unlike=options.unlike, **common)
    if learning is None or learning.task == "none":
        return NoTask()
    if learning.task == "logistic":
        return Logistic(size=learning.size, unlike=learning.unlike, **common)
    if learning.task == "perceptron":
        return Perceptron(hidden=learning.size, unlike=learning.unlike, **common)
    if learning.task in _MODULES:
        return _MODULES[learning.task](size=learning.size, unlike=learning.unlike, **common)
    return Quadratic(
        size=learning.size,
        condition=learning.condition,
        noise=learning.noise,
        unlike=learning.unlike,
        **common,
    )
