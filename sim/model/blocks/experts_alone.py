"""A layer of experts alone, as in Nemotron 3."""

from sim.model.blocks.experts import experts_part
from sim.model.execution import Execution
from sim.model.experts.layer import Experts
from sim.model.operators import Operator

SETTINGS = Experts


def operators(run: Execution) -> tuple[Operator, ...]:
    """Return the block's operators on one rank, in forward order."""
    return experts_part(run)
