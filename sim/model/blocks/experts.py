"""The transformer layer with experts in place of the feed-forward block (Shazeer et al. 2017)."""

from collections.abc import Iterator

from sim.model.blocks.dense import attention_part, before, forked, joined
from sim.model.execution import Execution
from sim.model.experts import dispatch, products, router, shared
from sim.model.experts.layer import Layer
from sim.model.experts.settings import Experts
from sim.model.operators import Operator, belonging, scoped

SETTINGS = Experts


def operators(run: Execution) -> tuple[Operator, ...]:
    """Its operators on one rank, in forward order."""
    return (
        *attention_part(run),
        *scoped("moe_router", before(run, "ffn")),
        *forked(run, belonging("moe", tuple(_experts(Layer(run))))),
        *joined(run, "ffn"),
    )


def _experts(layer: Layer) -> Iterator[Operator]:
    """Router, dispatch, experts, combination, and the shared experts."""
    layer.check()
    yield from scoped("moe_router", [router.router(layer)])
    yield from scoped("moe_preprocess", dispatch.permute(layer))
    yield dispatch.dispatch(layer)
    yield products.widen(layer)
    yield products.activate(layer)
    yield products.narrow(layer)
    yield dispatch.combine(layer)
    yield from shared.shared(layer)
