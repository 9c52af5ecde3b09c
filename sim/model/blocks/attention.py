"""A layer that is attention and nothing else, as of Nemotron-H."""

from sim.model.blocks.dense import attention_part
from sim.model.execution import Execution
from sim.model.operators import Operator


def operators(run: Execution) -> tuple[Operator, ...]:
    """Its operators on one rank, in forward order."""
    return attention_part(run)
