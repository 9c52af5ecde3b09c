"""A layer in which attention and a mixer with a state run side by side, as in Falcon-H1.

Both read the same normalised input, and the sum of their results is added to the residual stream. A
feed-forward block follows (Zuo et al. 2025, arXiv 2507.22448, section 2).
"""

from dataclasses import replace

from sim.model import attention, state_space
from sim.model.blocks.dense import feed_forward_part
from sim.model.blocks.parallel import summed
from sim.model.execution import Execution
from sim.model.operators import Operator, dropout_add, normalise, scoped
from sim.model.state_space import StateSpace

SETTINGS = StateSpace


def operators(run: Execution) -> tuple[Operator, ...]:
    """Return the block's operators on one rank, in forward order."""
    norm = normalise(run, "attention norm", run.local)
    first, *rest = state_space.operators(run, run.block)
    return (
        *scoped("attn", (norm, *attention.operators(run))),
        *scoped("mamba", (replace(first, reads=(norm.name,)), *rest)),
        summed(run),
        dropout_add(run, "attention residual", run.local),
        *feed_forward_part(run),
    )
