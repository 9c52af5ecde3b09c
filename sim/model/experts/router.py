"""The router: scores of all experts, and the best of them for each token."""

from dataclasses import replace

from sim.model.experts.layer import Layer
from sim.model.kernels import MemoryBound
from sim.model.linear import Linear
from sim.model.operators import Operator

# Kernels of an unfused router: softmax or sigmoid, top-k, two scatters, normalisation, auxiliary
# loss (Megatron-LM, megatron/core/transformer/moe/moe_utils.py, topk_routing_with_score_function
# and switch_load_balancing_loss_func). Each passes over the fp32 scores about once.
_ROUTER_LAUNCHES, _FUSED_ROUTER_LAUNCHES = 14, 3


def router(layer: Layer) -> Operator:
    """Scores of all experts, the best of them for each token, the loss that balances them."""
    run, experts = layer.run, layer.own
    if experts.routing.law == "round-robin":
        return _in_turn(layer)
    scores = layer.tokens * experts.experts
    linear = Linear(
        run=replace(run, precision="fp32" if run.width == 4 else "bf16", recipe=None),
        name="router",
        rows=layer.tokens,
        inputs=run.model.hidden,
        outputs=(experts.experts,),
        bias=run.shape.bias,
    )
    back = _router_gradients(layer, linear)
    launches = _FUSED_ROUTER_LAUNCHES if run.fused("router") else _ROUTER_LAUNCHES
    choose = MemoryBound(name="top-k", bytes=8.0 * scores * launches, launches=launches)
    size = float(layer.tokens * run.model.hidden * run.width)
    return Operator(
        name="router",
        forward=(*linear.forward, choose),
        input_gradient=(choose, *back.input_gradient),
        weight_gradient=back.weight_gradient,
        inputs=size,
        saved=4.0 * scores,
        saved_for_weights=0.0 if experts.shared_width else size,
        made=4.0 * scores,
        handed=4.0 * scores,
        parameters=float(linear.weights + experts.experts * run.shape.bias),
        matrices=linear.matrices,
    )


def _router_gradients(layer: Layer, linear: Linear) -> Operator:
    """Gradients of the scores' product, whose operands are cast to fp32 and whose results are
    cast back where the router is fp32 (Megatron-LM, moe/moe_utils.py,
    RouterGatingLinearFunction: forward TransformerEngine multiplies bf16 operands)."""
    run = layer.run
    operator = Operator(
        input_gradient=linear.input_gradient, weight_gradient=linear.weight_gradient
    )
    if not run.fusion.router_fp32 or run.width == 4:
        return operator
    wide = replace(linear, run=replace(linear.run, precision="tf32"))
    both = float(layer.tokens * run.model.hidden * (run.width + 4))
    casts = [MemoryBound(name=f"router {what} cast", bytes=both) for what in ("grad", "input")]
    return Operator(
        input_gradient=(*wide.input_gradient, casts[0]),
        weight_gradient=(casts[1], *wide.weight_gradient),
    )


def _in_turn(layer: Layer) -> Operator:
    """Numbers of experts and equal weights in a router's place: a range of integers, its
    remainders, ones and their share, and a cast (FakeBalancedGate)."""
    chosen = float(layer.tokens * layer.own.top_k)
    made = MemoryBound(name="experts in turn", bytes=chosen * (24 + 18), launches=5)
    size = float(layer.tokens * layer.run.model.hidden * layer.run.width)
    return Operator(name="router", forward=(made,), inputs=size)
