"""A layer that is a feed-forward block and nothing else, as of Nemotron-H."""

from sim.model.blocks.dense import feed_forward_part
from sim.model.execution import Execution
from sim.model.operators import Operator

KEYS = False  # no attention, and so no keys of tokens


def operators(run: Execution) -> tuple[Operator, ...]:
    """Its operators on one rank, in forward order."""
    return feed_forward_part(run)
