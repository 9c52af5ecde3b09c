"""The transformer layer with experts in place of the feed-forward block (Shazeer et al. 2017)."""

from sim.model import experts
from sim.model.blocks.dense import attention_part, joined
from sim.model.execution import Execution
from sim.model.operators import Operator, belonging, normalise, scoped

SETTINGS = experts.Experts


def operators(run: Execution) -> tuple[Operator, ...]:
    """Its operators on one rank, in forward order."""
    return (
        *attention_part(run),
        *scoped("moe_router", [normalise(run, "ffn norm", run.local)]),
        *belonging("moe", experts.operators(run)),
        *joined(run, "ffn"),
    )
