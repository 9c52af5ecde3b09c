"""A layer of experts alone, as in Nemotron 3."""

from sim.model.blocks.experts import experts_part
from sim.model.execution import Execution
from sim.model.experts.layer import Experts
from sim.model.operators import Operator

SETTINGS = Experts
KEYS = False  # The layer has no attention, so it keeps no keys of tokens.


def operators(run: Execution) -> tuple[Operator, ...]:
    """Return the block's operators on one rank, in forward order."""
    return experts_part(run)
