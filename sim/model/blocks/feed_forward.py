"""A layer of a feed-forward block alone, as in Nemotron-H."""

from sim.model.blocks.dense import feed_forward_part
from sim.model.execution import Execution
from sim.model.operators import Operator


def operators(run: Execution) -> tuple[Operator, ...]:
    """Return the block's operators on one rank, in forward order."""
    return feed_forward_part(run)
