"""Tokens on their way to the experts, and back."""

from dataclasses import replace

from sim.model.casts import cast
from sim.model.experts.layer import Layer
from sim.model.kernels import READ, Item, Kernel, MemoryBound
from sim.model.operators import Items, Operator
from sim.program.causes import EXPERT, IMBALANCE
from sim.program.operations import Collective, Kind
from sim.program.routed import DEEPEP_SMS, Routed


def permute(layer: Layer) -> tuple[Operator, ...]:
    """Return the operator, if any, that sorts a rank's tokens by the ranks of their experts."""
    forward, backward = _permute(layer, "permute"), _permute(layer, "permute grad")
    operator = Operator(name="permute", beside="router", forward=forward, input_gradient=backward)
    return (operator,) if forward else ()


def dispatch(layer: Layer) -> Operator:
    """Return the operator that sends tokens to the ranks of their experts and sorts them there.
    Without a capacity the number of tokens for each expert is known only after routing. The host
    launches a product for each expert, so it waits to read these numbers (Megatron-LM,
    moe/token_dispatcher.py, `_maybe_dtoh_and_synchronize`; DeepEP, csrc/deep_ep.cpp,
    `intranode_dispatch` and `internode_dispatch`: "CPU busy wait"). A CUDA graph of the whole step
    does not wait."""
    return Operator(
        name="dispatch",
        beside="router",
        forward=(*_counts(layer), *_move(layer, "dispatch"), *_sort(layer, "sort")),
        input_gradient=(*_sort(layer, "sort grad"), *_move(layer, "dispatch grad")),
        inputs=float(layer.tokens * layer.run.model.hidden * layer.run.width),
        transient=2.0 * layer.size,
    )


def combine(layer: Layer) -> Operator:
    """Return the operator that sends results back to the tokens' ranks and sums them per token."""
    return Operator(
        name="combine",
        forward=(*_sort(layer, "unsort"), *_move(layer, "combine"), *_permute(layer, "unpermute")),
        input_gradient=(
            *_permute(layer, "unpermute grad"),
            *_move(layer, "combine grad"),
            *_sort(layer, "unsort grad"),
        ),
        inputs=layer.size,
        transient=2.0 * layer.size,
    )


def _counts(layer: Layer) -> Items:
    return () if layer.own.capacity or not layer.run.fusion.host_counts else (READ,)


def _permute(layer: Layer, name: str) -> Items:
    """Return the kernel that copies a rank's tokens for each of their k experts, or sums the k
    results. It reads tokens once and writes them k times, or the reverse. Dispatchers other than
    "flat" send tokens without copies."""
    if layer.run.dispatcher != "flat":
        return ()
    launches = 1 if layer.run.fused("permute") else 4
    each = layer.tokens * layer.run.model.hidden * layer.run.width * layer.narrowed(name)
    return (MemoryBound(name=name, bytes=float(each * (1 + layer.own.top_k)), launches=launches),)


def _sort(layer: Layer, name: str) -> Items:
    """Return the kernel that sorts rows by the rank's experts, or sorts them back. Dispatchers
    other than "flat" send a token once to a rank, where it is copied for each of its experts."""
    launches, size = 1 if layer.run.fused("permute") else 4, layer.size * layer.narrowed(name)
    if layer.run.dispatcher != "flat":
        arrived = _routed(layer).reached(layer.ep) * size / layer.own.top_k
        return (MemoryBound(name=name, bytes=arrived + size, launches=launches),)
    if layer.experts == 1 or layer.ep == 1:
        return ()
    return (MemoryBound(name=name, bytes=2.0 * size, launches=launches),)


def _routed(layer: Layer) -> Routed:
    experts = layer.own
    limit = experts.limit or experts.groups
    return Routed(
        choices=experts.top_k,
        among=experts.experts,
        groups=experts.groups,
        limit=limit,
        in_turn=experts.routing.law == "round-robin",
    )


def _move(layer: Layer, name: str) -> Items:
    """Return the all-to-all among the ranks of experts, then the collective among the ranks that
    share an expert. On the way back the order is reversed."""
    items: list[Item] = []
    sharding, backward = layer.run.sharding, name in ("combine", "dispatch grad")
    if layer.ep > 1:
        whole = layer.size / layer.etp * layer.narrowed(name)
        routed = None if layer.run.dispatcher == "flat" else _routed(layer)
        size = whole / layer.own.top_k if routed else whole
        if routed:
            usual = DEEPEP_SMS if layer.run.dispatcher == "deepep" else 0
            item, sms = size / layer.tokens, layer.run.fusion.reserved_sms or usual
            routed = replace(routed, item=item, summed=backward, sms=sms)
        items += _cast(layer, name)
        items.append(_call(layer, "all_to_all", sharding.experts, size, name, routed))
        if (late := layer.load.fullest - layer.load.mean) > 0.0:
            call = _call(layer, "all_to_all", sharding.experts, late * size, f"{name} late", routed)
            items.append(replace(call, cause=IMBALANCE))
    if layer.etp > 1:
        kind: Kind = "reduce_scatter" if backward else "all_gather"
        items.append(_call(layer, kind, sharding.expert_tensor, layer.size, f"{name} shares"))
    return tuple(reversed(items) if backward else items)


def _call(
    layer: Layer,
    kind: Kind,
    axes: tuple[str, ...],
    size: float,
    name: str,
    routed: Routed | None = None,
) -> Collective:
    return Collective(
        kind=kind,
        axes=axes,
        bytes=size,
        name=f"{name} of tokens",
        cause=EXPERT,
        routed=routed,
        quiet=layer.run.fusion.reserved_sms > 0,
    )


def _cast(layer: Layer, name: str) -> tuple[Kernel, ...]:
    """Return the cast of a rank's own tokens to the format in which they are sent, if any."""
    elements = layer.tokens * layer.run.model.hidden
    return cast(layer.run, name, elements, 1) if layer.narrowed(name) < 1.0 else ()
