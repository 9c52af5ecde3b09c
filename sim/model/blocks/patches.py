"""The embedding of an image: a linear layer over its patches, a class token, positions.

Dosovitskiy et al. 2020 (arXiv 2010.11929), section 3.1, equation 1. A convolution whose stride is
its kernel is a product of the patches, laid out as rows, with (patch patch channels) x hidden.
Every tensor-parallel rank has all of it.
"""

from sim.config.dataclass import dataclass
from sim.model.blocks.embedding import dropped, positions
from sim.model.execution import Execution
from sim.model.kernels import MemoryBound
from sim.model.linear import Linear
from sim.model.operators import Operator

LAYER = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Patches:
    """Squares of `patch` pixels a side, of so many colours."""

    patch: int
    channels: int = 3

    @property
    def pixels(self) -> int:
        return self.patch**2 * self.channels


SETTINGS = Patches


def operators(run: Execution) -> tuple[Operator, ...]:
    """Its operators on one rank, in forward order."""
    return (_project(run), positions(run), dropped(run))


def _project(run: Execution) -> Operator:
    """Patches to hidden states; the class token is put before them, one row of parameters."""
    pixels, hidden, width = run.block.pixels, run.model.hidden, run.width
    rows = run.microbatch * (run.seq - 1)
    linear = Linear(run=run, name="patches", rows=rows, inputs=pixels, outputs=(hidden,), bias=True)
    image = float(rows * pixels * width)
    size = float(run.rows * hidden * width)
    arrange = MemoryBound(name="arrange patches", bytes=2 * image)
    join = MemoryBound(name="class token", bytes=2 * size)
    return Operator(
        name="patches",
        forward=(arrange, *linear.forward, join),
        weight_gradient=linear.weight_gradient,
        saved_for_weights=image,
        made=image,
        handed=size,
        transient=linear.transient,
        parameters=float(linear.weights + 2 * hidden),
        matrices=linear.matrices,
    )
