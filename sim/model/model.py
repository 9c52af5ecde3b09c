"""The contract of every model, whatever kinds of layers it has."""

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Annotated, Any, ClassVar, Self, cast

from sim.config.checked import Named
from sim.config.dataclass import dataclass
from sim.config.units import Gt, Share

Positive = Annotated[float, Gt(0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerics:
    """Constants of a model that are passed on to frameworks; None if unknown, which leaves the
    framework's default. `rope_theta` is the base of rotary positions, which rotate the share
    `rotary_share` of a head. `rope_llama3` is the factor by which Llama 3.1 stretches the
    positions; `rope_scaling` holds the keys of `transformers` for any other way to scale them."""

    rope_theta: Positive | None = None
    rotary_share: Share | None = None
    rope_llama3: Positive | None = None
    rope_scaling: Mapping[str, Any] = field(default_factory=dict, hash=False)
    norm_epsilon: Positive | None = None


MOST_LAYERS = 10_000  # a hundred times as many as in trained models
FORM = 'write it like "3 dense, 58 experts"'


class Model(metaclass=Named):
    """A row of blocks, each of a kind (`sim.model.blocks`). Each subclass (a transformer, a
    network) states the attributes below. Ranks divide the sizes; a size that a model does not have
    is 1. `pattern` names the kinds of the layers in turn, `blocks` the settings of a kind. A
    subclass overrides methods whose answers differ from a transformer's."""

    __slots__ = ()

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    seq: int
    decoder_seq: int
    tied_embeddings: bool
    pattern: str
    blocks: Mapping[str, Mapping[str, Any]]
    numerics: Numerics
    notes: tuple[str, ...]
    latent: Any  # multi-head latent attention, where layers have it

    alike: ClassVar[bool] = True  # layers of a kind cost the same, and hand on the same bytes
    divided: ClassVar[bool] = True  # ranks may share a layer's weights, or a sequence
    unit: ClassVar[str] = "token"  # the unit of throughput: tokens or samples
    feature_maps: ClassVar[bool] = False  # layers keep feature maps, which a stash makes smaller
    clipped: ClassVar[bool] = True  # scripts clip its gradients if their stack clips
    tables: ClassVar[bool] = False  # `ep` divides embedding tables, not experts
    inputs: ClassVar[float] = 0.0  # bytes of one sample as it is loaded, beside its tokens

    def handed(self, layer: int, width: float) -> float:
        """Return the bytes of one sample (a sequence, an image) that a layer hands to the next, in
        activations of `width` bytes."""
        raise NotImplementedError

    def outputs(self, width: float) -> float:
        """Return the bytes of the model's result for one sample, in numbers of `width` bytes."""
        raise NotImplementedError

    @property
    def tokens(self) -> int:
        """Tokens of a sequence that are trained on: an encoder's and a decoder's."""
        return self.seq + self.decoder_seq

    @property
    def hears(self) -> bool:
        """Whether the model's encoder embeds something other than words, such as sound."""
        return self.decoder_seq > 0 and self.entry("embedding")["kind"] != "embedding"

    def check_context(self, cp: int) -> None:
        """Raise `InputError` unless `cp` ranks can divide attention along the sequence."""

    @property
    def tensors_of_a_layer(self) -> int:
        """Number of parameter tensors in a layer: weights and biases, or gains and shifts."""
        return 2

    def unfused(self) -> Self:
        """Return the model as a stack without fused attention runs it. Raises `ValueError`."""
        return self

    def pulled(self, batch: int) -> Self:
        """Return the part of the model that a worker holds for a `batch` of samples, if parameter
        servers keep the weights."""
        return self

    def check_tables(self, ep: int, ranks: int, where: str) -> None:
        """Raise `InputError` unless `ranks` that train together can divide embedding tables by
        `ep`."""

    def check(self, precision: str, device: str) -> None:
        """Raise `InputError` where the layers cannot run in a precision, or on a device."""

    def changed(self, **facts: Any) -> Self:
        """Return the model with some attributes changed. Raises `ValueError` if they contradict."""
        return cast(Self, replace(cast(Any, self), **facts))

    def check_length(self) -> None:
        """Raise `ValueError` for more layers than can be simulated."""
        if self.layers > MOST_LAYERS:
            fault = f"layers = {self.layers:,} is more than can be simulated"
            raise ValueError(f"{fault}; use at most {MOST_LAYERS:,}")

    @property
    def row(self) -> tuple[str, ...]:
        """The kinds of all blocks in order."""
        return self.kinds

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind of each layer, with its number if layers of the kind differ (`numbered`).

        >>> from dataclasses import replace
        >>> from sim.model.reading import load
        >>> mixed = {"own": {"kind": "dense", "numbered": True}}
        >>> replace(load("gpt2-124m"), layers=5, pattern="2 dense, own", blocks=mixed).kinds
        ('dense', 'dense', 'own:2', 'dense', 'dense')
        """
        turns = [(name, self.entry(name).get("numbered")) for name in period(self.pattern)]
        each = (turns * -(-self.layers // len(turns)))[: self.layers]
        if not any(numbered for _, numbered in turns):
            return tuple([name for name, _ in each])
        return tuple(f"{name}:{i}" if numbered else name for i, (name, numbered) in enumerate(each))

    def entry(self, name: str, above: tuple[str, ...] = ()) -> dict[str, Any]:
        """Return the keys of `blocks.NAME`, laid over the keys of the entry that its `kind` names.
        Raises `ValueError` for a kind that is no text, or if kinds name one another in a circle."""
        settings = dict(self.blocks.get(name, {}))
        kind = settings.get("kind", name)
        if not isinstance(kind, str):
            raise ValueError(f"blocks.{name}: kind = {kind!r} is no text; name a kind of layer")
        if kind == name or kind not in self.blocks:
            return settings | {"kind": kind}
        if kind in above:
            raise ValueError(f"blocks.{name}: kind = {kind!r} leads back to itself; name a kind")
        return self.entry(kind, (*above, name)) | {k: v for k, v in settings.items() if k != "kind"}


def period(pattern: str) -> tuple[str, ...]:
    """Return the kinds that a pattern such as "5 sliding, dense" repeats. Raises `ValueError`."""
    kinds: list[str] = []
    for part in pattern.split(","):
        match part.split():
            case [kind]:
                kinds.append(kind)
            case [count, kind] if count.isdigit() and 0 < int(count) <= MOST_LAYERS:
                kinds += [kind] * int(count)
            case _:
                raise ValueError(f'pattern = "{pattern}"; {FORM}')
    return tuple(kinds)
