"""Models that are no transformers: a row of unlike layers, without embedding and head."""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, ClassVar, Protocol, Self

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.model.model import Model, Numerics


class Layers(Protocol):
    """The source of a network's layers."""

    @property
    def kind(self) -> str:
        """The kind of block (`sim.model.blocks`) of all layers."""

    @property
    def layers(self) -> Sequence[Any]:
        """Return a description of each layer for its kind of block, in forward order."""

    @property
    def feature_maps(self) -> bool:
        """Whether the layers keep feature maps, which a stash makes smaller."""

    @property
    def divides_tables(self) -> bool:
        """Whether ranks divide embedding tables; the source then has a method `check_ranks`."""

    @property
    def inputs(self) -> float:
        """Bytes of one sample as it is loaded."""

    def handed(self, layer: int, width: float) -> float:
        """Return the bytes of a sample that a layer hands on, in activations of `width` bytes."""

    def pulled(self, batch: int) -> "Layers":
        """Return the part of the layers that a worker holds if parameter servers keep weights."""

    def check(self, precision: str, device: str) -> None:
        """Raise `InputError` if the layers cannot run in this precision or on this device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network(Model):
    """A row of layers as a model: a sequence is one sample (such as an image) of one token. Each
    layer hands one tensor to the next; branches between layers are not modelled."""

    name: str = ""
    layers: int
    pattern: str
    blocks: Mapping[str, Mapping[str, Any]] = field(hash=False)
    notes: tuple[str, ...] = ()
    source: Layers = field(hash=False)

    hidden: int = 1
    heads: int = 1
    kv_heads: int = 1
    ffn: int = 1
    vocab: int = 1
    seq: int = 1
    decoder_seq: int = 0
    tied_embeddings: bool = False
    latent: None = None
    numerics: Numerics = field(default_factory=Numerics, compare=False)

    alike: ClassVar[bool] = False
    divided: ClassVar[bool] = False
    unit: ClassVar[str] = "sample"
    clipped: ClassVar[bool] = False  # pytorch/examples, imagenet/main.py

    def __post_init__(self) -> None:
        self.check_length()

    @property
    def inputs(self) -> float:  # type: ignore[override]
        return self.source.inputs

    @property
    def feature_maps(self) -> bool:  # type: ignore[override]
        return self.source.feature_maps

    @property
    def tables(self) -> bool:  # type: ignore[override]
        return self.source.divides_tables

    def check_tables(self, ep: int, ranks: int, where: str) -> None:
        if self.tables:
            self.source.check_ranks(ep, ranks, where)  # type: ignore[attr-defined]

    def handed(self, layer: int, width: float) -> float:
        return self.source.handed(layer, width)

    def outputs(self, width: float) -> float:
        return self.source.handed(self.layers - 1, width)

    def pulled(self, batch: int) -> Self:
        return replace(self, source=self.source.pulled(batch))

    def check(self, precision: str, device: str) -> None:
        self.source.check(precision, device)


def network(source: Layers, name: str) -> Network:
    """Return the model with the layers of `source`."""
    return Network(
        name=name,
        layers=len(source.layers),
        pattern=source.kind,
        blocks={source.kind: {"numbered": True}},
        source=source,
    )


def own_layer(model: Model, layer: int | None, kind: str) -> tuple[Any, Any]:
    """Return a layer of a network, and the source of all its layers. Raises `InputError` for
    transformers."""
    if not isinstance(model, Network) or layer is None:
        fault = f"no transformer has layers of kind {kind!r}"
        raise InputError(f"model {model.name}".rstrip(), fault, f'write a file of kind = "{kind}"')
    return model.source.layers[layer], model.source
