"""How one rank executes a layer: its share of the model and the sizes that follow."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.model.fusion import Context, Dispatcher, Fusion, Layout
from sim.model.kernels import BYTES, JOINED, Precision
from sim.model.model import Model

if TYPE_CHECKING:
    from sim.model.lora import Lora
    from sim.model.precision import Product, Recipe
    from sim.model.stash import Stash

Words = Literal["alone", "first", "again"]


@dataclass(frozen=True, slots=True)
class ParameterGroup:
    """Parameters whose gradients are summed over the same ranks.

    `split_by` names the axes along which ranks hold different parameters of this group. Over all
    other axes of a stage the parameters are replicated: their gradients are summed, and ZeRO shards
    their states (`sim.parallel.state`). `low` marks weights that a recipe (`sim.model.precision`)
    keeps in its own format. Parameters that are not `trained` have no gradients and no states:
    frozen weights, and tables whose rows the backward pass itself updates.
    """

    name: str
    split_by: tuple[str, ...] = ("tp",)
    low: bool = False
    trained: bool = True


DENSE = ParameterGroup("dense")
EXPERTS = ParameterGroup("expert", split_by=("etp", "ep"))
TABLES = ParameterGroup("tables", split_by=("etp", "ep"), trained=False)


if TYPE_CHECKING:
    from sim.model.transformer import Transformer


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """How a layer is divided: over how many ranks, along which axes of the mesh.

    Sequence parallelism (Korthikanti et al. 2022, section 4.2.2) divides norms, dropouts and
    residual sums, which tensor parallelism leaves whole, along the sequence over the `tp` ranks.
    Context parallelism divides every tensor along the sequence over `cp` further ranks. In the
    attention core, groups of `ulysses` of these ranks exchange shares of the sequence for shares of
    the heads (`sim.model.context_parallel`). Across groups, a ring shares keys and values in the
    `way` of the plan or stack. Experts are divided over `ep` ranks, and each expert over `etp`.
    `tensor`, `context`, `exchanged`, `experts` and `expert_tensor` are the mesh axes of `tp`, the
    ring, `ulysses`, `ep` and `etp`.
    """

    tp: int = 1
    sequence_parallel: bool = False
    cp: int = 1
    ep: int = 1
    etp: int = 1
    tensor: tuple[str, ...] = ("tp",)
    context: tuple[str, ...] = ("cp",)
    ulysses: int = 1
    exchanged: tuple[str, ...] = ()
    way: Context = "ring"
    balanced: bool = True
    experts: tuple[str, ...] = ()
    expert_tensor: tuple[str, ...] = ()

    @property
    def ring(self) -> int:
        """Ranks that share keys and values."""
        return self.cp // self.ulysses

    def check(self, model: Model) -> None:
        """Raise `InputError` unless the ranks divide the model's sizes."""
        sizes = {"heads": model.heads, "ffn": model.ffn}
        for key, size in sizes.items():
            if size % self.tp:
                raise InputError(
                    "plan", f"tp = {self.tp} does not divide {key} = {size}", "lower tp"
                )
        if model.kv_heads % self.tp and self.tp % model.kv_heads:
            raise InputError(
                "plan",
                f"tp = {self.tp} neither divides kv_heads = {model.kv_heads} nor is its multiple",
                "change tp",
            )
        if self.sequence_parallel and self.tp == 1:
            raise InputError("plan", "sequence_parallel needs tp > 1", "leave it out")
        parts = self.cp * (self.tp if self.sequence_parallel else 1)
        if model.seq % parts:
            raise InputError(
                "plan",
                f"seq = {model.seq} does not divide into {parts} parts",
                "lower cp, or tp, or leave out sequence_parallel",
            )
        heads = model.heads // self.tp
        if heads % self.ulysses:
            fault = f"ulysses = {self.ulysses} does not divide the {heads} heads of a rank"
            raise InputError("plan", fault, "lower ulysses, or tp")
        if self.ring > 1 and self.balanced and model.seq % (2 * self.ring):
            fault = f"seq = {model.seq} has no two equal shares for each of {self.ring} ranks"
            raise InputError("plan", fault, "lower cp")
        model.check_context(self.cp)


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """A microbatch of a model on one rank: the source of every operator's sizes.

    With "fresh" gradients (`Fusion.gradients`) a step's first micro-step has nothing to add to:
    `later` is the share of micro-steps that add to earlier gradients, and `bucketed` the share that
    copies gradients into DDP's buckets. `words` says how this block uses the stage's word embedding
    (for tokens, multi-token prediction or a tied output layer): "alone", as the "first" of several
    blocks, which holds the matrix, or "again" after another block. With a `recipe` the products of
    linear layers run in the recipe's format, and `precision` is the precision of activations and
    all other products. With `lora` only adapters are trained. `stash` is how feature maps of
    convolutions are kept. With `overlaps_shared` shared experts run beside the all-to-alls of
    tokens (`sim.model.experts.overlap`). `block` holds the settings of the block's kind (its
    module's `SETTINGS`), `layer` its number where layers of the kind differ; `model` has the keys
    of the block's own entry. `graphs` are the scopes of layers that are CUDA graphs. If `memory` is
    not 0, attention reads that many tokens of another sequence. `empty_slots` says whether experts
    compute the slots of their capacity that no token fills.
    """

    model: Model
    microbatch: int
    sharding: Sharding
    precision: Precision
    fusion: Fusion
    later: float = 1.0
    bucketed: float = 0.0
    words: Words = "again"
    recipe: "Recipe | None" = None
    lora: "Lora | None" = None
    stash: "Stash | None" = None
    block: Any = None
    layer: int | None = None
    graphs: tuple[str, ...] = ()
    dispatcher: Dispatcher = "flat"
    overlaps_shared: bool = False
    memory: int = 0
    empty_slots: bool = True

    def __post_init__(self) -> None:
        self.sharding.check(self.model)

    @property
    def shape(self) -> "Transformer":
        """The model as a transformer, for blocks that only transformers have."""
        return cast("Transformer", self.model)

    @property
    def width(self) -> int:
        """Bytes of an activation."""
        return 4 if self.precision in ("fp32", "tf32") else 2

    @property
    def joined(self) -> float:
        """Cost of addresses for each element that torch.cat writes (`sim.model.kernels.JOINED`)."""
        return JOINED if self.width == 2 and not self.fusion.wide_joins else 0.0

    @property
    def stream_width(self) -> int:
        """Bytes of an element of the residual stream."""
        return 4 if self.fusion.fp32_norms == "stream" else self.width

    @property
    def kept_width(self) -> float:
        """Bytes of an element of the input that linear layers keep."""
        recipe = self.recipe
        return recipe.element if recipe and recipe.keeps_operand else float(self.width)

    @property
    def handed_width(self) -> float:
        """Bytes of an element of the output's gradient that linear layers hold for their weights'
        gradients; it is cast if wgrad runs in the recipe's format."""
        recipe = self.recipe
        return recipe.element if recipe and "wgrad" in recipe.products else float(self.width)

    @property
    def cached_width(self) -> float:
        """Bytes of an element of the input that an activation function keeps."""
        return self.recipe.element if self.recipe and self.recipe.caches else self.width

    @property
    def core_precision(self) -> Precision:
        """The precision of fused attention."""
        return "fp8" if self.recipe and self.recipe.attention else self.precision

    @property
    def core_width(self) -> float:
        """Bytes of an element of Q, K and V as fused attention reads and sends them."""
        return self.width if self.core_precision == self.precision else BYTES[self.core_precision]

    @property
    def shares_output(self) -> bool:
        """Whether one copy of attention's output serves both backward passes that read it."""
        low = self.recipe is not None and (self.recipe.core > 0 or self.recipe.attention)
        return self.keeps("attention output") or low

    @property
    def dispatched_width(self) -> float:
        """Bytes of an element of a token on its way to experts."""
        return self.recipe.element if self.recipe and self.recipe.dispatches else self.width

    @property
    def user_buffers(self) -> bool:
        """Whether tensor-parallel collectives run in pieces beside products."""
        return self.sharding.sequence_parallel and self.fusion.user_buffers

    def keeps(self, linear: str) -> bool:
        """Whether a linear layer of this name keeps its input, without casting it."""
        trained = self.lora is None or self.lora.adapts(linear)
        return trained and self.kept_width == self.width

    def normed(self, linear: str) -> str:
        """Return the part that a norm takes in casting the input of the linear layer after it: the
        whole "cast", finding the "maximum", or nothing (""), for instance where an adapter reads
        the same input (TransformerEngine, module/layernorm_linear.py, with_quantized_norm)."""
        adapted = self.lora is not None and self.lora.adapts(linear)
        return (
            "" if self.recipe is None or adapted else self.recipe.norms.get(self.fusion.norms, "")
        )

    def of(self, product: "Product") -> Precision:
        """The precision of a linear layer's product."""
        return self.recipe.of(product, self.precision) if self.recipe else self.precision

    def rate(self, product: "Product") -> float:
        """The rate of a linear layer's product, as a share of the usual rate of its precision."""
        return self.recipe.rate(product) if self.recipe else 1.0

    def low(self, group: ParameterGroup) -> ParameterGroup:
        """Return a group of weights of linear layers, marked `low` where a recipe formats them."""
        return replace(group, low=True) if self.recipe else group

    @property
    def tp(self) -> int:
        return self.sharding.tp

    @property
    def seq(self) -> int:
        """Tokens of one sequence on this rank."""
        return self.model.seq // self.sharding.cp

    @property
    def rows(self) -> int:
        """Tokens of a microbatch inside tensor-parallel blocks, where a rank sees all of them."""
        return self.microbatch * self.seq

    @property
    def local(self) -> int:
        """Tokens in this rank's norms, dropouts and residual sums."""
        return self.rows // self.tp if self.sharding.sequence_parallel else self.rows

    @property
    def heads(self) -> int:
        return self.model.heads // self.tp

    @property
    def kv_heads(self) -> int:
        """Key and value heads of this rank; they are replicated where tp exceeds them."""
        return max(1, self.model.kv_heads // self.tp)

    @property
    def query_width(self) -> int:
        return self.heads * self.shape.head

    @property
    def kv_width(self) -> int:
        """Columns of this rank's keys."""
        return self.kv_heads * self.shape.head

    @property
    def value_width(self) -> int:
        return self.kv_heads * self.shape.value_head

    @property
    def output_width(self) -> int:
        """Columns of the input of attention's output projection."""
        return self.heads * self.shape.value_head

    @property
    def keys(self) -> int:
        """Tokens that a token of a sequence may attend to."""
        return self.memory or self.seq

    @property
    def mixed(self) -> int:
        """Elements of this rank's Q, K and V."""
        keys = self.microbatch * self.keys
        return self.rows * self.query_width + keys * (self.kv_width + self.value_width)

    @property
    def ffn(self) -> int:
        return self.model.ffn // self.tp

    @property
    def vocab(self) -> int:
        """Rows of the embedding on this rank; the vocabulary is padded until tp divides it."""
        return -(-self.model.vocab // self.tp)

    @property
    def layout(self) -> Layout:
        """How images lie in memory."""
        return "nhwc" if self.precision in self.fusion.channels_last else "nchw"

    def fused(self, name: str) -> bool:
        return self.fusion.compiled or bool(getattr(self.fusion, name))
