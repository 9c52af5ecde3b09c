"""A transformer as published: its shape and the kinds of its layers."""

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Annotated, Any, Literal, Self

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.schema import Short
from sim.model.model import FORM, Model, Numerics, period

Family = Literal["gpt", "llama", "moe", "mpt", "bert"]  # whose layers they resemble
Positions = Literal["learned", "rotary", "relative", "alibi", "none"]
Normalisation = Literal["layernorm", "rmsnorm"]
AttentionKernel = Literal["standard", "flash"]
Linears = Literal["qkv", "attention output", "ffn", "logits"]
QkNorm = Literal["none", "rmsnorm", "heads", "whole", "l2"]

DECODER = "decoder"  # the kind of a layer that looks at an encoder's result
DECODER_INPUT = "decoder_input"
_MOST_MTP = 100  # a hundred times what has been trained


def _written(pattern: Any) -> Any:
    if isinstance(pattern, list):
        raise ValueError(f"{pattern} is a list; {FORM}")
    return pattern


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Multi-head latent attention (DeepSeek-AI 2024, arXiv 2405.04434, section 2.1).

    Keys and values come from a latent of `kv` elements a token, queries from one of `query` (0:
    from the hidden state); `rotary` elements of each head of Q and K carry the position, those of
    K one copy for all heads.
    """

    query: int = 0
    kv: int
    rotary: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer(Model):
    """The content of `models/NAME.toml`: a decoder, an encoder such as BERT, or an encoder whose
    result a decoder looks at, such as T5: sequences of `seq` tokens go through the layers in front
    of the first "decoder" of `pattern`, those of `decoder_seq` tokens through the others.

    `kv_heads` fewer than `heads` is grouped-query attention; `head` is the width of one head,
    `value_head` that of V where it is another. A query sees `window` keys at most, itself included,
    in an encoder half of the others on either side, or those of its own `chunk` of the sequence (0:
    all). With `documents` a sequence is packed with
    documents of that many tokens in the mean, whose queries see no other one's keys. `qk_norm`
    normalises each head of Q and K, by its root mean square with a gain or ("l2") without, each
    with a gain of its own ("heads"), or all heads together ("whole"); `sinks` gives
    each head a logit to leave attention on; `output_gate` multiplies what attention gives by a
    sigmoid of the token. `latent` makes it multi-head latent attention.
    `ffn` is the inner width of the feed-forward block, which is three matrices when `gated_mlp`;
    `glu_limit` clamps its gate and what that gates (0: neither), `activation_weights` are numbers
    that an activation without a gate trains.
    `dropout` says whether the published training uses it (its masks cost memory and time).
    `predictions` > 0 makes the output layer BERT's: a transform, then logits for that many masked
    tokens of each sequence; `pooler` adds its next-sentence classifier; `post_norm` normalises
    after each residual sum (no final normalisation, but one after the embedding), `output_norms`
    also what attention and feed-forward block give to it, and nothing else without `pre_norm`;
    `embedding_norm` has a norm behind the embedding, too. A norm has `norm_weights` for each
    column: a gain, and LayerNorm a shift where linear layers have biases, unless said. `bias` gives
    one to every linear layer of a block, `biases` to those that it names; keys have none without
    `key_bias`. A learned table of positions has `position_rows` (0: one for each token of a
    sequence; the decoder's where the encoder hears); "relative" ones add to each score one of
    `position_buckets` numbers of its head, those of encoder and decoder apart (Raffel et al. 2020,
    section 2.1). `mtp` further modules predict the tokens behind the next
    (multi-token prediction), each with a layer of the last one's kind.
    `pattern` names the layers' kinds (`sim.model.blocks`), repeated until all have one: "dense", or
    "3 dense, 58 experts". `blocks` holds what a kind needs to know besides, and variants of kinds:
    an entry `sliding` with kind = "dense" is a dense layer in which its other keys hold instead of
    the model's (`entry`, `sim.model.kinds`). `numerics` are handed on to frameworks and change
    nothing here, `notes` are said with every result.

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
            raise ValueError("mtp predicts further tokens, predictions masked ones; choose one")
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
            fault = f"documents = {self.documents} and chunk = {self.chunk}: a sequence has one"
            raise ValueError(f"{fault}; leave one of them out")
        if self.documents and self.attention == "standard":
            raise ValueError(
                'documents save nothing where scores are stored; set attention = "flash"'
            )
        if self.latent and self.kv_heads != self.heads:
            raise ValueError(f"kv_heads = {self.kv_heads}: latent attention has one for each head")
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
            fault = f"pattern = {self.pattern!r} has other layers behind its first decoder"
            raise ValueError(f"{fault}; put the encoder's in front of all decoders")
        foreign = ("latent", "window", "chunk", "documents", "predictions", "post_norm", "mtp")
        norms = ("output_norms", "embedding_norm")
        for key in (*foreign, *norms, "token_types", "pooler", "sinks", "causal"):
            if self.decoder_seq and getattr(self, key):
                raise ValueError(f"{key} is not known beside a decoder's layers; leave it out")

    def handed(self, layer: int, width: float) -> float:
        return self.seq * self.hidden * width

    def outputs(self, width: float) -> float:
        """The number of logits."""
        return (self.predictions or self.seq) * self.vocab * width

    def check_context(self, cp: int) -> None:
        if cp > 1 and self.attention == "standard":
            raise InputError("plan", "cp > 1 needs flash attention", 'set attention = "flash"')
        if cp > 1 and self.pieces > 1:
            fault = f"cp = {cp}: attention in pieces is not known divided along the sequence"
            raise InputError("plan", fault, "set cp = 1")

    def unfused(self) -> Self:
        return replace(self, attention="standard")

    @property
    def pieces(self) -> int:
        """Pieces of a sequence that attention sees one by one: chunks, or packed documents.

        >>> Transformer(layers=1, hidden=64, heads=4, ffn=64, vocab=9, seq=4096, documents=174,
        ...             tied_embeddings=True, attention="flash").pieces
        24
        """
        return max(1, round(self.seq / (self.chunk or self.documents or self.seq)))

    @property
    def query_width(self) -> int:
        """Columns of the query projection, all heads together."""
        return self.heads * self.head

    @property
    def kv_width(self) -> int:
        """Columns of the key projection."""
        return self.kv_heads * self.head

    def biased(self, linear: Linears) -> bool:
        """Whether these linear layers have a bias; the output layer only where `biases` says so."""
        return linear in self.biases or (self.bias and linear != "logits")

    @property
    def norm_gains(self) -> int:
        """Parameters of a normalisation for each column: a gain, a shift of LayerNorm's biases."""
        if self.norm_weights is not None:
            return self.norm_weights
        return 2 if self.normalisation == "layernorm" and self.bias else 1

    @property
    def position_parameters(self) -> int:
        rows = (self.position_rows or self.seq) if self.positions == "learned" else 0
        return (rows + self.token_types) * self.hidden

    @property
    def tensors_of_a_layer(self) -> int:
        """Parameter tensors: linear layers and two norms, each with its bias where there is one."""
        return (6 + self.gated_mlp) * (2 if self.bias else 1)

    @property
    def row(self) -> tuple[str, ...]:
        """The kinds of all blocks in order, embedding and head included."""
        kinds = self.kinds
        if self.decoder_seq:
            first = kinds.index(DECODER)
            return ("embedding", *kinds[:first], DECODER_INPUT, *kinds[first:], "head")
        return ("embedding", *kinds, *("mtp_input", kinds[-1], "mtp_head") * self.mtp, "head")
