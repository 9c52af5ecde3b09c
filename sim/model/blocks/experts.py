"""The transformer layer with experts in place of the feed-forward block (Shazeer et al. 2017)."""

from sim.model import attention, experts
from sim.model.execution import Execution
from sim.model.operators import Operator, belonging, dropout_add, normalise

SETTINGS = experts.Experts


def operators(run: Execution) -> tuple[Operator, ...]:
    """Its operators on one rank, in forward order."""
    return (
        normalise(run, "attention norm", run.local),
        *attention.operators(run),
        dropout_add(run, "attention residual", run.local),
        normalise(run, "ffn norm", run.local),
        *belonging("moe", experts.operators(run)),
        dropout_add(run, "ffn residual", run.local),
    )
