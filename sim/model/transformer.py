"""A transformer as published: its shape and the kinds of its layers."""

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Annotated, Any, Literal, Self

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.schema import Short
from sim.model.model import FORM, Model, Numerics, period

Family = Literal["gpt", "llama", "moe", "mpt", "bert"]  # the model family that layers resemble
Positions = Literal["learned", "rotary", "relative", "alibi", "none"]
Normalisation = Literal["layernorm", "rmsnorm"]
AttentionKernel = Literal["standard", "flash"]
Linears = Literal["qkv", "attention output", "ffn", "logits"]
QkNorm = Literal["none", "rmsnorm", "heads", "whole", "l2"]

DECODER = "decoder"  # the kind of a layer that attends to an encoder's result
DECODER_INPUT = "decoder_input"
_MOST_MTP = 100  # a hundred times as many as in trained models


def _written(pattern: Any) -> Any:
    if isinstance(pattern, list):
        raise ValueError(f"{pattern} is a list; {FORM}")
    return pattern


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Multi-head latent attention (DeepSeek-AI 2024, arXiv 2405.04434, section 2.1). Keys and
    values come from a latent of `kv` elements per token, queries from a latent of `query` elements
    (0: from the hidden state). `rotary` elements of each head of Q and K carry the position; all
    heads of K share one copy of them."""

    query: int = 0
    kv: int
    rotary: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer(Model):
    """The content of `models/NAME.toml`: a decoder, an encoder such as BERT, or an encoder with a
    decoder that reads its result, such as T5. Sequences of `seq` tokens go through the layers in
    front of the first "decoder" of `pattern`, sequences of `decoder_seq` tokens through the others.
    Attention: fewer `kv_heads` than `heads` is grouped-query attention. `head` is the width of a
    head, `value_head` the width of a head of V if it differs. A query sees at most `window` keys,
    its own included (0: all); in an encoder half of the other keys are on either side. With a
    `chunk` a query sees only keys in its own chunk of the sequence. With `documents` a sequence is
    packed with documents of that many tokens on average, and a query sees only keys of its own
    document. `qk_norm` normalises each head of Q and K by its root mean square, with a gain for the
    layer ("rmsnorm"), a gain for each head ("heads") or no gain ("l2"). With "whole" it normalises
    all heads together. `sinks` gives each head a logit that takes part in the softmax without a
    key. `output_gate` multiplies attention's output by a sigmoid of a projection of the token. With
    `latent` the model has multi-head latent attention. Feed-forward: `ffn` is the inner width of
    the block, which has three matrices if `gated_mlp`. `glu_limit` clamps the gate and the gated
    half (0: no clamp). `activation_weights` is the number of trained parameters of an activation
    without a gate. `dropout` says whether the published training uses dropout (its masks cost
    memory and time). Norms and biases: `post_norm` normalises after each residual sum; there is
    then no final norm, but one after the embedding. `output_norms` also normalises the results of
    attention and feed-forward block in front of the residual sum; without `pre_norm` these are a
    layer's only norms. `embedding_norm` adds a norm after the embedding. A norm has `norm_weights`
    parameters for each column, by default a gain, and in LayerNorm a shift if linear layers have
    biases. `bias` gives a bias to every linear layer of a block, `biases` to the linear layers it
    names; without `key_bias` keys have none. Ends: `predictions` > 0 makes the output layer BERT's,
    a transform and then logits for that many masked tokens of each sequence; `pooler` adds BERT's
    next-sentence classifier. A learned table of positions has `position_rows` rows (0: one for each
    token of a sequence, of the decoder's sequence after an encoder of sound). "relative"
    `positions` add to each score one of `position_buckets` numbers of its head; encoder and decoder
    have separate numbers (Raffel et al. 2020, section 2.1). `mtp` further modules predict later
    tokens (multi-token prediction); each has a layer of the kind of the model's last layer.
    `pattern` names the kinds of the layers (`sim.model.blocks`), for instance "dense" or "3 dense,
    58 experts", and is repeated until every layer has a kind. `blocks` holds further settings of
    kinds, and variants of kinds: an entry `sliding` with kind = "dense" is a dense layer whose
    other keys replace the model's (`entry`, `sim.model.kinds`). `numerics` are passed on to
    frameworks and change nothing here. `notes` are printed with every result.

    Raises `ValueError` for a shape that cannot be.
    """

    name: str = ""
    family: Family = "gpt"
    layers: int
    hidden: int
    heads: int
    kv_heads: int = 0
    head: int = 0
    value_head: int = 0
    window: int = 0
    chunk: int = 0
    documents: int = 0
    qk_norm: QkNorm = "none"
    sinks: bool = False
    output_gate: bool = False
    latent: Latent | None = None
    ffn: int
    gated_mlp: bool = False
    glu_limit: float = 0.0
    activation_weights: int = 0
    vocab: int
    seq: int
    decoder_seq: int = 0
    tied_embeddings: bool
    positions: Positions = "learned"
    normalisation: Normalisation = "layernorm"
    bias: bool = True
    biases: tuple[Linears, ...] = ()
    key_bias: bool = True
    dropout: bool = True
    causal: bool = True
    attention: AttentionKernel = "standard"
    norm_weights: Literal[0, 1, 2] | None = None
    post_norm: bool = False
    pre_norm: bool = True
    embedding_norm: bool = False
    output_norms: bool = False
    position_rows: int = 0
    position_buckets: int = 32
    token_types: int = 0
    predictions: int = 0
    pooler: bool = False
    mtp: int = 0
    pattern: Annotated[str, Short(_written)] = "dense"
    blocks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, hash=False)
    numerics: Numerics = field(default_factory=Numerics, compare=False)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._check_sizes()
        if not self.head and self.hidden % self.heads:
            raise ValueError(
                f"heads = {self.heads} does not divide hidden = {self.hidden}; give head = ..."
            )
        object.__setattr__(self, "kv_heads", self.kv_heads or self.heads)
        object.__setattr__(self, "head", self.head or self.hidden // self.heads)
        object.__setattr__(self, "value_head", self.value_head or self.head)
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads = {self.kv_heads} does not divide heads = {self.heads}")
        self._check_attention()
        self._check_decoder()
        for name in (*period(self.pattern), *self.blocks):
            self.entry(name)
        if self.mtp and self.predictions:
            raise ValueError("mtp predicts further tokens, predictions masked tokens; choose one")
        seq = self.decoder_seq if self.hears else self.seq
        if self.positions == "learned" and 0 < self.position_rows < seq:
            raise ValueError(f"seq = {seq} exceeds position_rows = {self.position_rows}")
        if self.post_norm and self.output_norms:
            raise ValueError("post_norm and output_norms exclude one another; choose one")
        if not (self.pre_norm or self.output_norms or self.post_norm):
            raise ValueError(
                "pre_norm = false leaves layers without norms; set output_norms = true"
            )
        if self.predictions > self.seq:
            raise ValueError(f"predictions = {self.predictions} exceeds seq = {self.seq}")

    def _check_sizes(self) -> None:
        for key in ("layers", "hidden", "heads", "ffn", "vocab", "seq"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key} = {getattr(self, key)} must be at least 1")
        for key in (
            *("kv_heads", "head", "value_head", "window", "chunk", "documents"),
            *("token_types", "predictions", "mtp", "position_rows", "decoder_seq"),
        ):
            if getattr(self, key) < 0:
                raise ValueError(f"{key} = {getattr(self, key)} must not be negative")
        self.check_length()
        if self.mtp > _MOST_MTP:
            fault = f"mtp = {self.mtp:,} is more than can be simulated"
            raise ValueError(f"{fault}; use at most {_MOST_MTP:,}")

    def _check_attention(self) -> None:
        if self.window and self.chunk:
            fault = f"window = {self.window} and chunk = {self.chunk}: queries see one or the other"
            raise ValueError(f"{fault}; leave one of them out")
        if self.chunk and not self.causal:
            raise ValueError("chunk needs a causal model")
        if self.chunk and self.seq > self.chunk and self.seq % self.chunk:
            raise ValueError(f"chunk = {self.chunk} does not divide seq = {self.seq}")
        if self.documents and self.chunk:
            fault = f"documents = {self.documents}, chunk = {self.chunk}: a sequence has only one"
            raise ValueError(f"{fault}; leave one of them out")
        if self.documents and self.attention == "standard":
            raise ValueError('documents save nothing if scores are stored; set attention = "flash"')
        if self.latent and self.kv_heads != self.heads:
            raise ValueError(f"kv_heads = {self.kv_heads}: latent attention needs kv_heads = heads")
        if self.latent and self.latent.rotary >= self.head:
            raise ValueError(f"latent.rotary = {self.latent.rotary} leaves nothing of a head")

    def _check_decoder(self) -> None:
        if self.positions == "relative" and self.attention != "standard":
            fault = 'positions = "relative" are added to scores'
            raise ValueError(f'{fault}; set attention = "standard", which stores them')
        if (DECODER in period(self.pattern)) != (self.decoder_seq > 0):
            fault = f"decoder_seq = {self.decoder_seq} and pattern = {self.pattern!r}"
            raise ValueError(f"{fault}; give layers of kind decoder the tokens of their sequences")
        if self.decoder_seq and DECODER not in self.kinds:
            fault = f"layers = {self.layers} end before the first decoder of {self.pattern!r}"
            raise ValueError(f"{fault}; shorten the pattern, too")
        if self.decoder_seq and set(self.kinds[self.kinds.index(DECODER) :]) != {DECODER}:
            fault = f"pattern = {self.pattern!r} has other layers after its first decoder"
            raise ValueError(f"{fault}; put the encoder's layers in front of all decoders")
        foreign = ("latent", "window", "chunk", "documents", "predictions", "post_norm", "mtp")
        norms = ("output_norms", "embedding_norm")
        for key in (*foreign, *norms, "token_types", "pooler", "sinks", "causal"):
            if self.decoder_seq and getattr(self, key):
                raise ValueError(f"{key} is not modelled in a model with a decoder; leave it out")

    def handed(self, layer: int, width: float) -> float:
        return self.seq * self.hidden * width

    def outputs(self, width: float) -> float:
        """Return the bytes of the logits of one sequence."""
        return (self.predictions or self.seq) * self.vocab * width

    def check_context(self, cp: int) -> None:
        if cp > 1 and self.attention == "standard":
            raise InputError("plan", "cp > 1 needs flash attention", 'set attention = "flash"')
        if cp > 1 and self.pieces > 1:
            fault = f"cp = {cp}: how ranks divide attention in pieces is not known"
            raise InputError("plan", fault, "set cp = 1")

    def unfused(self) -> Self:
        return replace(self, attention="standard")

    @property
    def pieces(self) -> int:
        """Number of pieces of a sequence that attention treats apart: chunks or packed documents.

        >>> Transformer(layers=1, hidden=64, heads=4, ffn=64, vocab=9, seq=4096, documents=174,
        ...             tied_embeddings=True, attention="flash").pieces
        24
        """
        return max(1, round(self.seq / (self.chunk or self.documents or self.seq)))

    @property
    def query_width(self) -> int:
        """Columns of the query projection, for all heads together."""
        return self.heads * self.head

    @property
    def kv_width(self) -> int:
        """Columns of the key projection."""
        return self.kv_heads * self.head

    def biased(self, linear: Linears) -> bool:
        """Whether these linear layers have a bias; the output layer has one only if `biases` says
        so."""
        return linear in self.biases or (self.bias and linear != "logits")

    @property
    def norm_gains(self) -> int:
        """Number of parameters of a norm for each column: a gain, and perhaps a shift."""
        if self.norm_weights is not None:
            return self.norm_weights
        return 2 if self.normalisation == "layernorm" and self.bias else 1

    @property
    def position_parameters(self) -> int:
        rows = (self.position_rows or self.seq) if self.positions == "learned" else 0
        return (rows + self.token_types) * self.hidden

    @property
    def tensors_of_a_layer(self) -> int:
        """Number of parameter tensors of the linear layers and norms of a layer."""
        return (6 + self.gated_mlp) * (2 if self.bias else 1)

    @property
    def row(self) -> tuple[str, ...]:
        """The kinds of all blocks in order, embedding and head included."""
        kinds = self.kinds
        if self.decoder_seq:
            first = kinds.index(DECODER)
            return ("embedding", *kinds[:first], DECODER_INPUT, *kinds[first:], "head")
        return ("embedding", *kinds, *("mtp_input", kinds[-1], "mtp_head") * self.mtp, "head")
