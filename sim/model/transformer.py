"""A transformer as published: its shape, its parameters, its model FLOPs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sim.config import catalog
from sim.config.errors import InputError

Positions = Literal["learned", "rotary", "alibi", "none"]
Normalisation = Literal["layernorm", "rmsnorm"]
AttentionKernel = Literal["standard", "flash"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer:
    """The content of `models/NAME.toml`: a decoder, or an encoder such as BERT.

    `kv_heads` fewer than `heads` is grouped-query attention; `head` is the width of one head;
    `ffn` the inner width of the feed-forward block, which is three matrices when `gated_mlp`.
    `dropout` says whether the published training uses it (its masks cost memory and time).
    `predictions` > 0 makes the output layer BERT's: a transform, then logits for that many masked
    tokens of each sequence; `pooler` adds its next-sentence classifier; `post_norm` normalises
    after each residual sum (no final normalisation, but one after the embedding).

    Raises `ValueError` for a shape that cannot be.

    >>> gpt3 = load("gpt3-175b")
    >>> f"{gpt3.parameters / 1e9:.1f}"
    '174.6'
    """

    name: str = ""
    family: str = "gpt"
    layers: int
    hidden: int
    heads: int
    kv_heads: int = 0
    head: int = 0
    ffn: int
    gated_mlp: bool = False
    vocab: int
    seq: int
    tied_embeddings: bool = True
    positions: Positions = "learned"
    normalisation: Normalisation = "layernorm"
    bias: bool = True
    dropout: bool = True
    causal: bool = True
    attention: AttentionKernel = "standard"
    post_norm: bool = False
    token_types: int = 0
    predictions: int = 0
    pooler: bool = False

    def __post_init__(self) -> None:
        for key in ("layers", "hidden", "heads", "ffn", "vocab", "seq"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key} = {getattr(self, key)} must be at least 1")
        for key in ("kv_heads", "head", "token_types", "predictions"):
            if getattr(self, key) < 0:
                raise ValueError(f"{key} = {getattr(self, key)} must not be negative")
        if not self.head and self.hidden % self.heads:
            raise ValueError(
                f"heads = {self.heads} does not divide hidden = {self.hidden}; give head = ..."
            )
        object.__setattr__(self, "kv_heads", self.kv_heads or self.heads)
        object.__setattr__(self, "head", self.head or self.hidden // self.heads)
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads = {self.kv_heads} does not divide heads = {self.heads}")
        if self.predictions > self.seq:
            raise ValueError(f"predictions = {self.predictions} exceeds seq = {self.seq}")

    @property
    def query_width(self) -> int:
        """Columns of the query projection, all heads together."""
        return self.heads * self.head

    @property
    def kv_width(self) -> int:
        """Columns of the key projection, and of the value projection."""
        return self.kv_heads * self.head

    @property
    def ffn_matrices(self) -> int:
        return 3 if self.gated_mlp else 2

    @property
    def layer_weights(self) -> int:
        """Elements of one layer's matrices: what its tokens are multiplied by."""
        attention = 2 * self.hidden * (self.query_width + self.kv_width)
        return attention + self.ffn_matrices * self.hidden * self.ffn

    @property
    def layer_biases(self) -> int:
        """Bias elements of one layer's linears."""
        if not self.bias:
            return 0
        attention = self.query_width + 2 * self.kv_width + self.hidden
        return attention + (self.ffn_matrices - 1) * self.ffn + self.hidden

    @property
    def norm_parameters(self) -> int:
        """Elements of one normalisation: a gain, and a shift for LayerNorm with biases."""
        return self.hidden * (2 if self.normalisation == "layernorm" and self.bias else 1)

    @property
    def layer_parameters(self) -> int:
        return self.layer_weights + self.layer_biases + 2 * self.norm_parameters

    @property
    def position_parameters(self) -> int:
        rows = self.seq if self.positions == "learned" else 0
        return (rows + self.token_types) * self.hidden

    @property
    def embedding_parameters(self) -> int:
        """Word, position and token-type embeddings, and the normalisation behind them."""
        norm = self.norm_parameters if self.post_norm else 0
        return self.vocab * self.hidden + self.position_parameters + norm

    @property
    def masked_head_parameters(self) -> int:
        """BERT's transform, its normalisation, the logits' bias, pooler and classifier."""
        dense = self.hidden * self.hidden + self.hidden
        masked = dense + self.norm_parameters + self.vocab if self.predictions else 0
        return masked + (dense + 2 * self.hidden + 2 if self.pooler else 0)

    @property
    def head_parameters(self) -> int:
        """Final normalisation and output layer; a tied output matrix counts in the embedding."""
        norm = 0 if self.post_norm else self.norm_parameters
        output = 0 if self.tied_embeddings else self.vocab * self.hidden
        return norm + output + self.masked_head_parameters

    @property
    def parameters(self) -> int:
        """The published count (a tied embedding once)."""
        layers = self.layers * self.layer_parameters
        return layers + self.embedding_parameters + self.head_parameters

    def model_flops(self, batch: int) -> float:
        """Matrix-multiplication FLOPs of one step of `batch` sequences, forward and backward.

        3 x (2 x tokens x matrix elements + 4 b s^2 heads head per layer + logits): attention in
        full also when causal (PaLM, arXiv 2204.02311, appendix B; Narayanan et al. 2021,
        equation 3 without its recomputation). Look-ups of embeddings count nothing.

        >>> gpt = load("megatron-39b")
        >>> b, s, l, h, v = 4, gpt.seq, gpt.layers, gpt.hidden, gpt.vocab
        >>> gpt.model_flops(b) == 72 * b * s * l * h * h * (1 + s / (6 * h) + v / (12 * l * h))
        True
        """
        tokens = batch * self.seq
        scores = 4 * tokens * self.seq * self.query_width
        return 3.0 * (self.layers * (2 * tokens * self.layer_weights + scores) + self._head(batch))

    def _head(self, batch: int) -> int:
        if not self.predictions:
            return 2 * batch * self.seq * self.hidden * self.vocab
        masked = 2 * batch * self.predictions * self.hidden * (self.vocab + self.hidden)
        return masked + (2 * batch * self.hidden * (self.hidden + 2) if self.pooler else 0)


def load(name: str, *, where: str = "command line") -> Transformer:
    """The model that `models/NAME.toml` describes. Raises `InputError`."""
    return catalog.load("models", name, Transformer, where=where)


# What a family's published training code has that the tables do not print as columns.
_FAMILIES: dict[str, dict[str, Any]] = {
    # Megatron-LM, megatron/model/language_model.py: learned positions, dropout 0.1, biases.
    "gpt": {},
    # nanotron, torchtitan, Megatron-LM's llama recipes: no biases, no dropout.
    "llama": {
        "positions": "rotary",
        "normalisation": "rmsnorm",
        "bias": False,
        "dropout": False,
    },
    # llm-foundry scripts/train/benchmarking: no_bias, learned_pos_emb, no dropout.
    "mpt": {"bias": False, "dropout": False},
    # Devlin et al. 2019: post-norm encoder, two segments, next-sentence prediction.
    "bert": {"causal": False, "post_norm": True, "token_types": 2, "pooler": True},
}


def from_columns(row: Mapping[str, Any]) -> Transformer:
    """The model of one row of a measurement table (columns in the tables' README).

    Values may be texts as the csv module gives them. Raises `InputError` for a mixture of
    experts or an unknown family.

    >>> row = dict(id="a", family="llama", layers="2", hidden="64", heads="4", kv_heads="2",
    ...            ffn="128", vocab="100", seq="32", gated_mlp="true", tied_embeddings="false",
    ...            experts="", attention="flash")
    >>> from_columns(row).kv_width
    32
    """
    where = str(row.get("id", "table row"))
    if not _blank(row.get("experts")):
        raise InputError(where, "mixture of experts is not modelled yet", "leave out such rows")
    family = str(row["family"])
    if family not in _FAMILIES:
        known = ", ".join(_FAMILIES)
        raise InputError(where, f"unknown family {family!r}", f"known families: {known}")
    traits = dict(_FAMILIES[family])
    if family == "bert":
        traits["predictions"] = masked_predictions(int(row["seq"]))
    sizes = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "seq")
    try:
        traits |= {key: int(float(row[key])) for key in sizes}
        return Transformer(
            name=where,
            family=family,
            gated_mlp=_true(row["gated_mlp"]),
            tied_embeddings=_true(row["tied_embeddings"]),
            attention="standard" if row.get("attention") == "standard" else "flash",
            **traits,
        )
    except ValueError as error:
        raise InputError(where, str(error)) from None


def masked_predictions(seq: int) -> int:
    """BERT's masked tokens a sequence, `max_predictions_per_seq`: 20 at 128, 80 at 512.

    NVIDIA DeepLearningExamples, PyTorch/LanguageModeling/BERT/README; 15 % masked elsewhere.
    """
    return {128: 20, 512: 80}.get(seq, max(1, round(0.15 * seq)))


def _true(value: Any) -> bool:
    return value if isinstance(value, bool) else str(value).strip().lower() == "true"


def _blank(value: Any) -> bool:
    # A NaN, as pandas reads an empty cell, differs from itself.
    return value is None or value != value or str(value).strip() == ""
