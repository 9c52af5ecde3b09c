"""The experts' feed-forward blocks: grouped products and the kernels between them."""

from dataclasses import replace

from sim.model import feed_forward
from sim.model.execution import EXPERTS
from sim.model.experts.layer import Layer
from sim.model.kernels import Kernel, Lag, MemoryBound
from sim.model.linear import Linear, cached
from sim.model.operators import Items, Operator, belonging, kernels_of


def widen(layer: Layer) -> Operator:
    """Return the product hidden -> ffn of each expert, twice as wide if gated."""
    width = layer.own.ffn // layer.etp * (2 if layer.run.shape.gated_mlp else 1)
    low = layer.narrowed("dispatch") < 1.0
    product = _product(layer, "expert in", layer.run.model.hidden, width, low=("input",) * low)
    kept = cached(layer.run, "expert in", layer.rows * width)
    if _adds(layer, "both", "first"):
        return replace(product, forward=(*product.forward, *kept))
    *add, back = _gate_bias(layer, layer.rows * width)
    gradient = (back, *product.input_gradient)
    return replace(product, forward=(*product.forward, *add, *kept), input_gradient=gradient)


def _adds(layer: Layer, *ways: str) -> bool:
    """Whether a product needs no kernels for a bias: the model has no bias, the products are fused,
    or `Fusion.expert_bias` is one of `ways`."""
    return not layer.run.shape.bias or _fuses(layer) or layer.run.fusion.expert_bias in ways


def _gate_bias(layer: Layer, elements: float) -> tuple[MemoryBound, ...]:
    """Return the kernels that add the bias of each expert to its rows and join the rows of all
    experts; backward a kernel joins the experts' gradients
    (`torch.cat([t + b for t, b in zip(torch.split(...), bias)])`)."""
    size, width, name = elements * layer.run.width, layer.run.width, "expert in bias"
    return (
        _broadcast(name, elements, 2 * width, layer.experts),
        MemoryBound(name=f"{name} join", bytes=2 * size),
        MemoryBound(name=f"{name} grad join", bytes=2 * size),
    )


def narrow(layer: Layer) -> Operator:
    """Return the product ffn -> hidden of each expert."""
    inputs, low = layer.own.ffn // layer.etp, layer.narrowed("combine grad") < 1.0
    adds = _adds(layer, "both")
    made = _product(
        layer, "expert out", inputs, layer.run.model.hidden, low=("grad",) * low, bias=adds
    )
    if adds:
        return made
    *add, once, back = _bias(layer)
    return replace(
        made, forward=(*made.forward, *add), input_gradient=(once, back, *made.input_gradient)
    )


def _bias(layer: Layer) -> tuple[MemoryBound, ...]:
    """Return the kernels that add the bias b of each expert, times the fp32 routing weight p of
    each row, to y. Forward they write b p, read and write y + b p, join the rows of all experts in
    fp32 and cast them. Backward they cast dy to fp32, and each expert's part to bf16 for the
    product, join these casts, multiply dy by p and by b, and sum both (Megatron-LM, moe/experts.py,
    `_apply_bias`: `torch.cat([t + b * p ...]).to(...)`). Multiplications by b or p broadcast."""
    elements, width, each = layer.rows * layer.run.model.hidden, layer.run.width, layer.experts
    forward = (width + 4 + 4) + (4 + 4) + (4 + width)
    backward = (width + 4) + (4 + width) + 2 * width + 2 * 4
    return (
        _broadcast("expert bias product", elements, 4, each),
        MemoryBound(name="expert bias", bytes=elements * forward, launches=each + 2),
        _broadcast("expert bias product grad", 2 * elements, 4 + 4, 2 * each),
        MemoryBound(name="expert bias grad", bytes=elements * backward, launches=3 * each + 2),
    )


def _product(
    layer: Layer,
    name: str,
    inputs: int,
    outputs: int,
    *,
    low: tuple[str, ...] = (),
    bias: bool = True,
) -> Operator:
    """Return a grouped product and the wait for the fullest rank, whose bytes count. Operands in
    `low` arrive cast. The product adds the bias if `bias`; otherwise further kernels do."""
    run = layer.run
    even = Linear(
        run=run,
        name=name,
        rows=round(layer.rows),
        inputs=inputs,
        outputs=(outputs,),
        groups=layer.experts,
        bias=run.shape.bias and bias,
        low=low,
        ready=("grad" if name == "expert in" else "input",) * _fuses(layer),
    )
    full = replace(even, rows=round(layer.most))
    return Operator(
        name=name,
        forward=_awaited(layer, even.forward, full.forward),
        input_gradient=_awaited(layer, even.input_gradient, full.input_gradient),
        weight_gradient=_awaited(layer, even.weight_gradient, full.weight_gradient),
        inputs=layer.most * inputs * run.width,
        saved_for_weights=layer.most * inputs * run.kept_width,
        handed=layer.most * outputs * run.handed_width,
        transient=full.transient,
        parameters=float(even.weights + (layer.experts * outputs if run.shape.bias else 0)),
        matrices=even.matrices,
        group=run.low(EXPERTS),
    )


def _awaited(layer: Layer, items: Items, fullest: Items) -> Items:
    if layer.load.fullest == layer.load.mean:
        return items
    return (*items, Lag(own=_kernels(items), fullest=_kernels(fullest)))


def activate(layer: Layer) -> Operator:
    """Return the activation between both products, times the router's weight of each row."""
    sizes = replace(layer.run.shape, ffn=layer.own.ffn)
    run, width = replace(layer.run, model=sizes), layer.own.ffn / layer.etp
    even, full = (feed_forward.activation(run, rows * width) for rows in (layer.rows, layer.most))
    awaited = replace(
        full,
        forward=_awaited(layer, even.forward, full.forward),
        input_gradient=_awaited(layer, even.input_gradient, full.input_gradient),
    )
    if _fuses(layer):
        awaited = replace(awaited, forward=(), input_gradient=())
    (operator,) = belonging("moe_act", [awaited])
    return operator


def _fuses(layer: Layer) -> bool:
    """Whether the products include the kernels between them."""
    run = layer.run
    blocks = run.recipe is not None and run.recipe.scaled_by_tensor_cores
    return run.fusion.epilogues and blocks and run.shape.gated_mlp and layer.etp == 1


def _kernels(items: Items) -> tuple[Kernel, ...]:
    return tuple(kernels_of(items))


def _broadcast(name: str, elements: float, width: float, launches: int) -> MemoryBound:
    """Return kernels that broadcast an operand, and so compute the address of each element."""
    return MemoryBound(name=name, bytes=elements * width, strided=elements, launches=launches)
