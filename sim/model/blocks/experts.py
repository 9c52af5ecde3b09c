"""The transformer layer with experts in place of the feed-forward block (Shazeer et al. 2017)."""

from collections.abc import Iterator
from dataclasses import replace

from sim.model import feed_forward
from sim.model.blocks.dense import attention_part, before, forked, joined
from sim.model.execution import DENSE, Execution
from sim.model.experts import dispatch, products
from sim.model.experts.layer import Experts, Layer, router
from sim.model.kernels import MemoryBound
from sim.model.linear import Linear
from sim.model.operators import Operator, belonging, scoped

SETTINGS = Experts


def operators(run: Execution) -> tuple[Operator, ...]:
    """Return the block's operators on one rank, in forward order."""
    return (*attention_part(run), *experts_part(run))


def experts_part(run: Execution) -> tuple[Operator, ...]:
    """Return the norm, the experts and the residual sum."""
    return (
        *scoped("moe_router", before(run, "ffn")),
        *forked(run, belonging("moe", tuple(_experts(Layer(run))))),
        *joined(run, "ffn"),
    )


def _experts(layer: Layer) -> Iterator[Operator]:
    """Yield the router, dispatch, experts, combination, and the shared experts."""
    layer.check()
    yield from scoped("moe_router", [router(layer)])
    yield from _routed(layer, layer.inner)
    yield from shared(layer)


def _routed(layer: Layer, inner: Layer) -> Iterator[Operator]:
    """Yield the dispatch of tokens, the experts' work, and the way back. If experts work in a
    narrower `latent` space, projections lead into it and back."""
    hidden, seen = layer.run.model.hidden, inner.run.model.hidden
    if seen != hidden:
        yield replace(_projected(layer, "latent in", hidden, seen), beside="router")
    sent = [*scoped("moe_preprocess", dispatch.permute(inner)), dispatch.dispatch(inner)]
    yield from sent if seen == hidden else [replace(each, beside="") for each in sent]
    yield products.widen(inner)
    yield products.activate(inner)
    yield products.narrow(inner)
    yield dispatch.combine(inner)
    if seen != hidden:
        yield _projected(layer, "latent out", seen, hidden)


def _projected(layer: Layer, name: str, inputs: int, outputs: int) -> Operator:
    """Return a projection of the rank's own tokens. Every rank holds the projection's weights as a
    whole (transformers, NemotronHMoE)."""
    run, biased = layer.run, layer.run.shape.biased("ffn")
    linear = Linear(
        run=run, name=name, rows=layer.tokens, inputs=inputs, outputs=(outputs,), bias=biased
    )
    kept = float(layer.tokens * inputs * run.kept_width)
    return replace(
        linear.operator,
        saved_for_weights=kept,
        made=0.0 if run.keeps(name) else kept,
        handed=float(layer.tokens * outputs * run.handed_width),
        casts=True,
        group=run.low(DENSE),
    )


def shared(layer: Layer) -> tuple[Operator, ...]:
    """Return the shared experts, which all tokens take: a feed-forward block, divided over ranks as
    in a dense layer."""
    if not (width := layer.own.shared_width):
        return ()
    model = replace(layer.run.shape, ffn=width)
    first, *others = feed_forward.operators(replace(layer.run, model=model), "shared expert")
    gate = (_shared_gate(layer),) if layer.own.shared_gate else ()
    return belonging("shared_experts", (*gate, replace(first, beside="router"), *others))


def _shared_gate(layer: Layer) -> Operator:
    """Return the gate of the shared experts. It multiplies their output by sigmoid(x w), a number
    for each token, with the layer's input x and the gate's weights w (transformers,
    Qwen2MoeSparseMoeBlock). It reads x once, and reads and writes the output once."""
    run = layer.run
    size = float(layer.tokens * run.model.hidden * run.width)
    return Operator(
        name="shared gate",
        forward=(MemoryBound(name="shared gate", bytes=3 * size, launches=3),),
        input_gradient=(MemoryBound(name="shared gate grad", bytes=6 * size, launches=4),),
        inputs=size,
        saved=size,
        made=size,
        beside="router",
        parameters=float(run.model.hidden),
    )
