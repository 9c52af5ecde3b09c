"""Precision recipes: which matrix products run in eight or four bits, and which casts they need.

A linear layer has three products: y = x W (forward), dx = dy W' (dgrad) and dW = x' dy (wgrad), and
each of x, W and dy is an operand of two of them. A recipe says how an operand is cast.
"""

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Annotated, Any, Literal

from sim.config import catalog
from sim.config.bounds import Ge, Gt, Le
from sim.config.dataclass import dataclass
from sim.config.units import Bytes
from sim.model.fusion import Norms
from sim.model.kernels import BYTES, Precision

Product = Literal["forward", "dgrad", "wgrad"]
Operand = Literal["input", "weight", "gradient"]

_USES: dict[Operand, tuple[Product, Product]] = {
    "input": ("forward", "wgrad"),
    "weight": ("forward", "dgrad"),
    "gradient": ("dgrad", "wgrad"),
}


# The share of their rate that products keep whose scales of blocks CUDA cores multiply in, on H100
# and H800 at full clock: 0.84 in TensorRT-LLM (gemm_h100_sxm.csv.gz, fp8_block against fp8), 0.92
# in DeepGEMM's own tables (kernels/deepgemm_h800.csv).
PROMOTED = 0.90


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The content of `topologies/recipes/NAME.toml`.

    `products` run with operands of `precision`, all others in bf16, as embedding and head do, and
    attention unless `attention`: then Q, K, V and the gradient of its output are cast to eight
    bits, and what it makes of them back (TransformerEngine, fp8_dpa without fp8_mha). `block`
    elements along the summed dimension share a scale of `scale` bytes; 0 is one scale a tensor.
    Casting an operand reads it once, writes a copy for each of its uses (all at once where
    `fused`), after a pass of `amax` kernels that finds its maximum (0: none is needed); each copy
    takes `swizzle` further small kernels that put its scales into the order of the product. `keeps`
    is what waits for wgrad, the cast operand or the input itself.

    `weights`: "primary" ones exist in this format and as the optimizer's masters only, "copies" are
    cast once a step beside bf16 weights, or in every "pass". `gathers_weights`, `gathers_inputs`
    and `dispatches` say what is communicated so: parameters over replicas, sequence-parallel inputs
    (and gradients), tokens to experts. `caches` also keeps what activation functions read in this
    format; `core` is how many bytes an element of attention's output takes that is kept once, for
    its own backward pass and its projection's (0: in bf16 and as the operand). `wgrad` is the share
    of the other products' rate that wgrad reaches, whose operands both have scales along the sum.

    `norms` says what of a cast the kernel of the norm in front of a linear layer does, by whose
    kernel it is (`Fusion.norms`): all of it ("cast"), or finding the maximum.

    Without `keeps_transposes` those of primary weights are made in every backward pass
    (Megatron-Core's disable_parameter_transpose_cache), for want of memory.

    `fitted` tells the rest: whether a per-tensor operand needs a transposed copy for its second
    use, and whether weights are `sharded` over replicas (ZeRO-3).
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
        """Whether the backward pass turns weights that are there in one copy."""
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
        """The operands' precision in a product."""
        return self.precision if product in self.products else plain

    def rate(self, product: Product) -> float:
        """The share of the usual rate of its precision at which a product runs."""
        if product not in self.products:
            return 1.0
        scaled = PROMOTED if self.block and not self.scaled_by_tensor_cores else 1.0
        return scaled * (self.wgrad if product == "wgrad" else 1.0)

    def copies(self, operand: Operand) -> int:
        """Copies of an operand: blocks lie along the summed dimension, which differs by use."""
        uses = sum(product in self.products for product in _USES[operand])
        return uses if self.block or self.transposes else min(uses, 1)

    @property
    def keeps_operand(self) -> bool:
        return self.keeps == "operand" and "wgrad" in self.products

    def cast(self, elements: float, copies: int, *, width: float, amax: bool = True) -> float:
        """Bytes that casting so many elements of `width` bytes moves."""
        reads = (1 if self.fused else copies) + (amax and self.amax > 0)
        return elements * (width * reads + copies * self.element) if copies else 0.0

    def launches(self, copies: int, *, amax: bool = True) -> int:
        """The kernels that it takes."""
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
        """This recipe on a device and for weights that stay, or come and go with each pass.

        Copies of weights that go cannot be kept (TransformerEngine's is_first_microbatch); those
        gathered in this format are cast before, share by share, which costs next to nothing.
        """
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
    """The recipe that a name in `topologies/recipes` (or a path) stands for, with some of its keys
    changed. Raises `InputError` for an unknown name, key or value.

    >>> load("mxfp8", {"attention": True}).attention
    True
    """
    if not changes:
        return catalog.load("topologies/recipes", name, Recipe, where=where)
    path = catalog.find("topologies/recipes", name, where=where)
    content = catalog.document("topologies/recipes", path)
    return catalog.validate(catalog.overlaid(content, changes), Recipe, where)
