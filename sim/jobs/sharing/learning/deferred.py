"""Vectors whose values are not known yet: gradients that are computed together, and their sums.

A simulation fixes its arithmetic long before anybody reads a value. So a task may return a
`Deferred` vector. Arithmetic with it is recorded, and done as soon as all its inputs are known.
Gradients whose weights are known are computed many at a time, when there are enough of them or when
a value is asked for. The order and the result of the arithmetic are the same as without deferral.
"""

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from sim.jobs.sharing.learning.task import Vector


class Deferred(NDArrayOperatorsMixin):
    """The result of `function` on vectors, some of which are not known yet; it has `size` numbers.

    Elementwise functions of the vector, operators included, are deferred; any other use computes
    its value.
    """

    __slots__ = ("_function", "_inputs", "_missing", "_readers", "batch", "size", "value")

    def __init__(
        self, batch: "GradientBatch", size: int, function: Any, inputs: tuple[Any, ...]
    ) -> None:
        self.batch, self.size = batch, size
        self._function, self._inputs = function, inputs
        self.value: Vector | None = None
        self._readers: list[Deferred] = []
        self._missing = 0
        for operand in inputs:
            if isinstance(operand, Deferred) and operand.value is None:
                operand._readers.append(self)
                self._missing += 1

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        inputs = tuple(map(known, inputs))
        waits = any(isinstance(operand, Deferred) for operand in inputs)
        if waits and method == "__call__" and not options:
            return Deferred(self.batch, self.size, ufunc, inputs)
        return getattr(ufunc, method)(*map(_array, inputs), **options)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Vector:
        while self.value is None:
            self.batch.take()
        return np.array(self.value, dtype=dtype) if copy else np.asarray(self.value, dtype=dtype)

    def __pow__(self, exponent: float) -> Any:  # an array's own power, which squares if it can
        if self.value is not None:
            return self.value**exponent
        return Deferred(self.batch, self.size, operator.pow, (self, exponent))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(np.asarray(self), name)

    def __getitem__(self, place: Any) -> Any:
        return np.asarray(self)[place]

    def __len__(self) -> int:
        return self.size

    def become(self, value: Vector) -> None:
        """Set the value, and compute the recorded vectors that were waiting only for this value."""
        found: list[tuple[Deferred, Vector]] = [(self, value)]
        while found:
            deferred, number = found.pop()
            deferred.value, deferred._inputs = number, ()
            readers, deferred._readers = deferred._readers, []
            for reader in readers:
                reader._missing -= 1
                if not reader._missing:
                    found += reader._evaluated()

    def _evaluated(self) -> list[tuple["Deferred", Vector]]:
        """This vector and its value, computed from known inputs. A `Gradient` yields nothing here:
        it joins its batch instead."""
        return [(self, self._function(*map(_array, self._inputs)))]


class Gradient(Deferred):
    """A task's gradient at some weights, on the batch of a worker's step."""

    __slots__ = ("rank", "step")

    def __init__(self, batch: "GradientBatch", weights: Any, rank: int, step: int) -> None:
        self.rank, self.step = rank, step
        super().__init__(batch, weights.size, None, (known(weights),))
        if not self._missing:
            batch.add(self)

    @property
    def weights(self) -> Vector:
        return np.asarray(self._inputs[0])

    def _evaluated(self) -> list[tuple[Deferred, Vector]]:
        self.batch.ready.append(self)
        return []


class GradientBatch:
    """Gradients whose weights are known; `compute` evaluates up to `most` of them at a time."""

    def __init__(
        self, compute: Callable[[Sequence[Gradient]], Iterable[Vector]], most: int
    ) -> None:
        self._compute, self._most = compute, most
        self.ready: list[Gradient] = []

    def add(self, gradient: Gradient) -> None:
        """Defer a further gradient; compute gradients once `most` gradients wait."""
        self.ready.append(gradient)
        if len(self.ready) >= self._most:
            self.take()

    def take(self) -> None:
        """Compute the gradients that have waited longest."""
        assert self.ready, "a value waits for gradients that nobody has asked for"
        taken, self.ready = self.ready[: self._most], self.ready[self._most :]
        for gradient, value in zip(taken, self._compute(taken), strict=True):
            gradient.become(value)


def applied(function: Callable[..., Vector], *vectors: Vector) -> Vector:
    """Apply a function that returns a vector of equal size; if a vector is deferred, defer it."""
    inputs = tuple(map(known, vectors))
    waiting = next((operand for operand in inputs if isinstance(operand, Deferred)), None)
    if waiting is None:
        return function(*inputs)
    return cast(Vector, Deferred(waiting.batch, waiting.size, function, inputs))


def known(vector: Any) -> Any:
    """The value of a deferred vector whose value is known; anything else unchanged."""
    if isinstance(vector, Deferred) and vector.value is not None:
        return vector.value
    return vector


def _array(vector: Any) -> Any:
    return np.asarray(vector) if isinstance(vector, Deferred) else vector
