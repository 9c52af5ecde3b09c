"""The embedding of an image: a linear layer over its patches, a class token, positions.

Dosovitskiy et al. 2020 (arXiv 2010.11929), section 3.1, equation 1. A convolution whose stride is
the size of its kernel is a product: each patch is a row, and the matrix has patch x patch x
channels rows and hidden columns. Every tensor-parallel rank holds the whole embedding.
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
    """Images are cut into squares of `patch` x `patch` pixels with `channels` colours."""

    patch: int
    channels: int = 3

    @property
    def pixels(self) -> int:
        return self.patch**2 * self.channels


SETTINGS = Patches


def operators(run: Execution) -> tuple[Operator, ...]:
    """Return the block's operators on one rank, in forward order."""
    return (_project(run), positions(run), dropped(run))


def _project(run: Execution) -> Operator:
    """Return the product of patches to hidden states. The class token, a learned row, is put in
    front of them."""
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
