"""The dense transformer layer with a state in place of attention, as in Jamba and Bamba."""

from sim.model.blocks.dense import feed_forward_part
from sim.model.blocks.state import state_part
from sim.model.execution import Execution
from sim.model.operators import Operator
from sim.model.state_space import StateSpace

SETTINGS = StateSpace


def operators(run: Execution) -> tuple[Operator, ...]:
    """Return the block's operators on one rank, in forward order."""
    return (*state_part(run, run.block), *feed_forward_part(run))
