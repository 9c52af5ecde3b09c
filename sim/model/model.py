"""The questions that are asked of every model, whatever its layers are of."""

from typing import ClassVar, Self


class Model:
    """A row of blocks; a transformer answers as said here unless it says otherwise."""

    __slots__ = ()

    alike: ClassVar[bool] = True  # layers of a kind cost the same, and hand on the same bytes
    divided: ClassVar[bool] = True  # ranks may share a layer's weights, or a sequence
    unit: ClassVar[str] = "token"  # what a step trains on
    feature_maps: ClassVar[bool] = False  # layers keep such, which a stash makes smaller
    clipped: ClassVar[bool] = True  # scripts clip its gradients where their stack does
    tables: ClassVar[bool] = False  # `ep` divides embedding tables, and no experts
    inputs: ClassVar[float] = 0.0  # bytes of one sample as it is loaded, beside its tokens

    def handed(self, layer: int, width: float) -> float:
        """Bytes of one sample (a sequence, an image) that a layer hands to the next, in activations
        of `width` bytes."""
        raise NotImplementedError

    def outputs(self, width: float) -> float:
        """Bytes of the model's result for one sample, in numbers of `width` bytes."""
        raise NotImplementedError

    def pulled(self, batch: int) -> Self:
        """The part of the model that a worker holds while servers keep its weights, for a `batch`
        of samples."""
        return self

    def check_tables(self, ep: int, ranks: int, where: str) -> None:
        """Raise `InputError` unless `ranks` that train together can divide its tables by `ep`."""

    def check(self, precision: str, device: str) -> None:
        """Raise `InputError` where the layers cannot run in a precision, or on a device."""
