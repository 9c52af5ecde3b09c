"""A layer whose attention and state read the same normalised input and add to it together, with a
feed-forward block behind them, as of Falcon-H1 (Zuo et al. 2025, arXiv 2507.22448, section 2)."""

from dataclasses import replace

from sim.model import attention, state_space
from sim.model.blocks.dense import feed_forward_part
from sim.model.blocks.parallel import summed
from sim.model.execution import Execution
from sim.model.operators import Operator, dropout_add, normalise, scoped
from sim.model.state_space import StateSpace

SETTINGS = StateSpace


def operators(run: Execution) -> tuple[Operator, ...]:
    """Its operators on one rank, in forward order."""
    norm = normalise(run, "attention norm", run.local)
    first, *rest = state_space.operators(run, run.block)
    return (
        *scoped("attn", (norm, *attention.operators(run))),
        *scoped("mamba", (replace(first, reads=(norm.name,)), *rest)),
        summed(run),
        dropout_add(run, "attention residual", run.local),
        *feed_forward_part(run),
    )
