"""The task that a `[sharing.learning]` table names, or a task of the user's own.

A user's task is an object, or a Python file that makes one.
"""

import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from sim.config import reads
from sim.config.errors import InputError
from sim.jobs.sharing.learning.module import characters, digits, residual
from sim.jobs.sharing.learning.numpy_tasks import Logistic, Perceptron, Quadratic
from sim.jobs.sharing.learning.task import LearningTask, NoTask
from sim.jobs.sharing.tables import Learning

Task = LearningTask | str | os.PathLike[str]
_REMEDY = "see docs/sharing.md, What it learns"


def own_task(task: Task, **options: Any) -> LearningTask:
    """Return the task itself, or the task that a file's function `task(*, size, batch, workers,
    unlike, seed)` makes: a `sim.jobs.sharing.learning.module.Module`, or another `LearningTask`.

    The file is run as it is. Raises `InputError` if the file does not exist or fails, or if the
    object is no task.
    """
    if isinstance(task, str | os.PathLike):
        where = f"--task {os.fspath(task)}"
        made = _made(Path(task), where, options)
        fault = "has no function task(*, size, batch, workers, unlike, seed) that returns a task"
    else:
        where, made, fault = "task", task, f"a {type(task).__name__} is no task"
    missing = [part for part in ("name", "start", "gradient", "loss") if not hasattr(made, part)]
    if missing:
        told = fault if made is None else f"{fault}: without {missing[0]}"
        raise InputError(where, told, _REMEDY)
    return cast(LearningTask, made)


def _made(path: Path, where: str, options: dict[str, Any]) -> Any:
    """The task that a file's function `task` returns; None if the file lacks the function."""
    source = reads.text(path, where=where)
    namespace: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
    try:
        exec(compile(source, path, "exec"), namespace)
        make = namespace.get("task")
        return make(**options) if callable(make) else None
    except InputError:
        raise
    except Exception as error:
        line = traceback.extract_tb(error.__traceback__)[-1].lineno
        fault = f"fails in line {line}: {type(error).__name__}: {error}".splitlines()[0]
        raise InputError(where, fault, _REMEDY) from None


_TASKS: dict[str, Callable[..., LearningTask]] = {
    "quadratic": Quadratic,
    "logistic": Logistic,
    "perceptron": Perceptron,
    "digits": digits,
    "residual": residual,
    "characters": characters,
}


def task_of(
    learning: Learning | None, workers: int, *, batch: int, seed: int, own: Task | None = None
) -> LearningTask:
    """The task of `workers` workers with batches of `batch` samples; `own` replaces the table's."""
    asked = Learning() if learning is None else learning
    options: dict[str, Any] = {"workers": workers, "seed": seed, "batch": batch}
    options |= {"size": asked.size, "unlike": asked.unlike}
    if own is not None:
        return own_task(own, **options)
    if learning is None or learning.task == "none":
        return NoTask()
    if learning.task == "quadratic":
        options |= {"condition": learning.condition, "noise": learning.noise}
    return _TASKS[learning.task](**options)
