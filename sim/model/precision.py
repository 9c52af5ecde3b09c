"""Precision recipes: which matrix products run in eight or four bits, and which casts they need.

A linear layer has three products: y = x W (forward), dx = dy W' (dgrad) and dW = x' dy (wgrad).
Each of x, W and dy is an operand of two products. A recipe says how an operand is cast.
"""

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Annotated, Any, Literal

from sim.config import catalog
from sim.config.dataclass import dataclass
from sim.config.units import Bytes, Ge, Gt, Le
from sim.model.fusion import Norms
from sim.model.kernels import BYTES, Precision

Product = Literal["forward", "dgrad", "wgrad"]
Operand = Literal["input", "weight", "gradient"]

_USES: dict[Operand, tuple[Product, Product]] = {
    "input": ("forward", "wgrad"),
    "weight": ("forward", "dgrad"),
    "gradient": ("dgrad", "wgrad"),
}


# The share of their rate that products keep if CUDA cores multiply the scales of blocks, on H100
# and H800 at full clock: 0.84 in TensorRT-LLM (gemm_h100_sxm.csv.gz, fp8_block against fp8), 0.92
# in DeepGEMM's own tables (kernels/deepgemm_h800.csv).
PROMOTED = 0.90


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The content of `topologies/recipes/NAME.toml`.

    The `products` of linear layers run with operands of `precision`; all other products, embedding
    and head run in bf16. Attention also runs in bf16, unless `attention` is true: then Q, K, V and
    the output's gradient are cast to eight bits, and its results are cast back (TransformerEngine,
    fp8_dpa without fp8_mha). `block` elements along the summed dimension share a scale of `scale`
    bytes; with 0 a tensor has one scale. Casting an operand reads it once and writes a copy for
    each of its uses, in one kernel if `fused`. Before the cast, `amax` kernels find the operand's
    maximum (0: no maximum is needed). Each copy takes `swizzle` further small kernels, which put
    its scales into the product's order. `keeps` says what is kept for wgrad, the cast operand or
    the input itself.

    `weights` says how weights are kept. "primary" weights exist only in this format and as the
    optimizer's masters. "copies" are cast once a step, beside bf16 weights. With "pass", bf16
    weights are cast in every pass. Three keys name data that is communicated in this format:
    parameters over replicas (`gathers_weights`), sequence-parallel inputs and gradients
    (`gathers_inputs`), tokens on the way to experts (`dispatches`). `caches` also keeps the inputs
    of activation functions in this format. `core` is the bytes of an element of attention's output,
    if one copy is kept for the backward passes of attention and of its projection (0: two copies,
    in bf16 and as the operand). `wgrad` is the rate of wgrad relative to the other products, as
    both of its operands have scales along the sum.

    `norms` gives the part of the cast that a norm's kernel does in front of a linear layer, by the
    library of the norm (`Fusion.norms`): all of it ("cast"), or finding the maximum ("maximum").

    Without `keeps_transposes` the transposes of primary weights are made in every backward pass, to
    save memory (Megatron-Core's disable_parameter_transpose_cache).

    `fitted` sets the last two keys: whether a per-tensor operand needs a transposed copy for its
    second use (`transposes`), and whether weights are `sharded` over replicas (ZeRO-3).
    """

    name: str
    precision: Literal["fp8", "fp4"]
    products: tuple[Product, ...] = ("forward", "dgrad", "wgrad")
    block: Annotated[int, Ge(0)] = 0
    scale: Bytes = 4.0
    amax: Annotated[int, Ge(0)] = 0
    fused: bool = True
    swizzle: Annotated[int, Ge(0)] = 0
    keeps: Literal["operand", "input"] = "operand"
    weights: Literal["primary", "copies", "pass"] = "copies"
    gathers_weights: bool = False
    gathers_inputs: bool = False
    dispatches: bool = False
    caches: bool = False
    core: Annotated[float, Ge(0)] = 0.0
    attention: bool = False
    wgrad: Annotated[float, Gt(0), Le(1)] = 1.0
    norms: Mapping[Norms, Literal["cast", "maximum"]] = field(default_factory=dict, hash=False)
    keeps_transposes: bool = True
    transposes: bool = False
    sharded: bool = False

    @property
    def turns_weights(self) -> bool:
        """Whether the backward pass transposes weights, because they are kept in one copy."""
        passing = self.sharded or not self.keeps_transposes
        return self.transposes and passing and self.weights == "primary"

    @property
    def scaled_by_tensor_cores(self) -> bool:
        """Whether scales have one byte and tensor cores apply them; CUDA cores apply scales of
        fp32."""
        return bool(self.block) and self.scale < 4.0

    @property
    def element(self) -> float:
        """Bytes of an element with its share of a scale.

        >>> load("mxfp8").element, load("nvfp4").element
        (1.03125, 0.5625)
        """
        return BYTES[self.precision] + (self.scale / self.block if self.block else 0.0)

    def of(self, product: Product, plain: Precision) -> Precision:
        """Return the precision of a product's operands; `plain` if the recipe leaves it alone."""
        return self.precision if product in self.products else plain

    def rate(self, product: Product) -> float:
        """Return the share of its precision's usual rate at which a product runs."""
        if product not in self.products:
            return 1.0
        scaled = PROMOTED if self.block and not self.scaled_by_tensor_cores else 1.0
        return scaled * (self.wgrad if product == "wgrad" else 1.0)

    def copies(self, operand: Operand) -> int:
        """Return the number of copies of an operand. Blocks lie along the summed dimension, so each
        use needs a copy. Devices that transpose operands need one for each use, too."""
        uses = sum(product in self.products for product in _USES[operand])
        return uses if self.block or self.transposes else min(uses, 1)

    @property
    def keeps_operand(self) -> bool:
        return self.keeps == "operand" and "wgrad" in self.products

    def cast(self, elements: float, copies: int, *, width: float, amax: bool = True) -> float:
        """Return the bytes that a cast of `elements` elements of `width` bytes moves."""
        reads = (1 if self.fused else copies) + (amax and self.amax > 0)
        return elements * (width * reads + copies * self.element) if copies else 0.0

    def launches(self, copies: int, *, amax: bool = True) -> int:
        """Return the number of kernels of a cast into `copies` copies."""
        made = (1 if self.fused else copies) + copies * self.swizzle
        return made + (self.amax if amax else 0)

    @property
    def held_weight(self) -> float:
        """Bytes of a weight on the rank that holds it."""
        if self.sharded:
            return self.element if self.weights == "primary" else 2.0
        if self.weights == "pass":
            return 2.0
        copies = 1 if self.turns_weights else self.copies("weight")
        return copies * self.element + (2.0 if self.weights == "copies" else 0.0)

    @property
    def gathered_weight(self) -> float:
        """Bytes of a weight as it crosses the network."""
        return self.element if self.gathers_weights else 2.0

    def fitted(self, *, transposes: bool, sharded: bool) -> "Recipe":
        """Return this recipe on a device that may need transposed operands, and for weights that
        may be `sharded`. Sharded weights are gathered for each pass and freed after it. Copies of
        freed weights cannot be kept (TransformerEngine's is_first_microbatch). Weights that are
        gathered in this format are cast before that, share by share, at almost no cost."""
        weights, gathers = self.weights, self.gathers_weights
        if sharded:
            weights = "primary" if gathers else "pass"
        elif weights == "pass":
            gathers = False
        return replace(
            self,
            transposes=transposes and not self.block,
            sharded=sharded,
            weights=weights,
            gathers_weights=gathers,
        )


def load(
    name: str, changes: Mapping[str, Any] | None = None, *, where: str = "command line"
) -> Recipe:
    """Return the recipe of a name in `topologies/recipes`, or of a path, with the keys in `changes`
    replaced. Raises `InputError` for an unknown name, key or value.

    >>> load("mxfp8", {"attention": True}).attention
    True
    """
    if not changes:
        return catalog.load("topologies/recipes", name, Recipe, where=where)
    path = catalog.find("topologies/recipes", name, where=where)
    content = catalog.document("topologies/recipes", path)
    return catalog.validate(catalog.overlaid(content, changes), Recipe, where)
