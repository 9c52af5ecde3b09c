"""A layer that is experts and nothing else, as of Nemotron 3."""

from sim.model.blocks.experts import experts_part
from sim.model.execution import Execution
from sim.model.experts.layer import Experts
from sim.model.operators import Operator

SETTINGS = Experts
KEYS = False  # no attention, and so no keys of tokens


def operators(run: Execution) -> tuple[Operator, ...]:
    """Its operators on one rank, in forward order."""
    return experts_part(run)
