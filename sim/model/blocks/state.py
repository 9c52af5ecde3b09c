"""A layer that is only a mixer with a state, as in Mamba 2 and Nemotron-H."""

from sim.model import state_space
from sim.model.blocks.dense import before, forked, joined
from sim.model.execution import Execution
from sim.model.operators import Operator, scoped
from sim.model.state_space import StateSpace

SETTINGS = StateSpace


def operators(run: Execution) -> tuple[Operator, ...]:
    """Return the block's operators on one rank, in forward order."""
    return state_part(run, run.block)


def state_part(run: Execution, ssm: StateSpace) -> tuple[Operator, ...]:
    """Return the norm, the mixer and the residual sum."""
    inside = forked(run, state_space.operators(run, ssm))
    return scoped("mamba", (*before(run, "mixer", into="mixer in"), *inside, *joined(run, "mixer")))
