"""Which kernels does a stack of recurrent layers run on a device?

cuDNN multiplies a layer's inputs by weights for all steps at once, and its state step by step. A
step of one layer runs beside the previous step of the next layer. The gates' arithmetic is one
kernel per step (Appleyard et al. 2016, arXiv:1604.01946, sections 3.1 to 3.3).
"""

from collections.abc import Iterator

from sim.config.dataclass import dataclass
from sim.model.kernels import BYTES, Gemm, Kernel, MemoryBound

Matrix = tuple[int, int]  # outputs and inputs of a weight matrix; a product sums over the inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence(Gemm):
    """Products of (m, k) by (k, n) matrices in `layers` layers, for `batch` directions side by
    side. Each of `steps` steps waits for the step before. `whole` has each layer's matrix for its
    input. `stepwise` has the matrices by which each layer multiplies in each step: for state and
    projection. Both list the matrices of one direction. The backward pass makes the gradients of
    input and states, then the gradients of weights, which are summed over all steps."""

    steps: int
    layers: int
    whole: tuple[Matrix, ...]
    stepwise: tuple[Matrix, ...]
    backward: bool = False

    @property
    def parts(self) -> tuple[tuple[Kernel, int], ...]:
        return tuple(self._parts())

    def _parts(self) -> Iterator[tuple[Kernel, int]]:
        rows = self.steps * self.m
        for matrix in self.whole:
            yield self._product(rows, *self._turned(matrix)), 1
        for wide, often in self._fronts():
            for matrix in self.stepwise:
                yield self._product(self.m, *self._turned(matrix), wide), often
            yield self._gates(wide), often
        if self.backward:
            for made, summed in (*self.whole, *self.stepwise * self.layers):
                yield self._product(made, summed, rows), 1

    def _turned(self, matrix: Matrix) -> Matrix:
        return matrix[::-1] if self.backward else matrix

    def _fronts(self) -> Iterator[tuple[int, int]]:
        """Yield pairs: a number of layers that run at once, and the number of such rounds. With
        two directions a layer needs all steps of the layer below, so only one layer runs at once.
        """
        if self.batch > 1:
            yield 1, self.steps * self.layers
            return
        most = min(self.steps, self.layers)
        yield from ((wide, 2) for wide in range(1, most))
        yield most, abs(self.steps - self.layers) + 1

    def _product(self, m: int, n: int, k: int, wide: int = 1) -> Gemm:
        count = wide * self.batch
        return Gemm(
            name=self.name, m=m, n=n, k=k, batch=count, kernels=count, precision=self.precision
        )

    def _gates(self, wide: int) -> MemoryBound:
        """Return the gates' kernel, which reads both products (backward: the gates), writes the
        gates, and reads and writes states."""
        units = self.stepwise[-1][1]
        elements = 2 * self.n + 5 * units if self.backward else 3 * self.n + 3 * units
        moved = wide * self.batch * self.m * elements * BYTES[self.precision]
        return MemoryBound(name=self.name, bytes=moved)

    @property
    def launches(self) -> int:
        return sum(often * part.launches for part, often in self.parts)

    @property
    def flops(self) -> float:
        """2 m r c FLOPs per step for each (r, c) matrix, and twice as many backward."""
        return sum(
            often * part.flops for part, often in self.parts if not isinstance(part, MemoryBound)
        )

    @property
    def bytes(self) -> float:
        return sum(often * part.bytes for part, often in self.parts)
