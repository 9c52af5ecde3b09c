"""Encodings of feature maps between the passes that read them (Gist).

Jain, Phanishayee, Mars, Tang and Pekhimenko 2018, "Gist: Efficient data encoding for deep neural
network training", ISCA, section 4. A map is encoded after the last operator of the forward pass
that reads it, and decoded before the first operator of the backward pass that reads it.
"""

from typing import Annotated, Literal, NamedTuple

from sim.config.dataclass import dataclass
from sim.config.units import Ge, Lt
from sim.model.kernels import MemoryBound

# What backward passes read of a map: its values, values that are often 0 ("sparse"), only the
# signs, or which element of a window was the largest ("places").
Reads = Literal["values", "sparse", "signs", "places"]

_ROW = 256  # elements of a row of the sparse format, so that a column takes one byte (section 4.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stash:
    """How feature maps are kept between passes: the `[plan.stash]` table of a scenario.

    `lossless` encodings keep the signs (1 bit) of a map that only a ReLU and a pooling read. They
    keep the place of the largest element in a window (4 bits) for a pooling. For a product, they
    keep the results of a ReLU that are not 0, in compressed rows (sections 4.1 and 4.2).
    `sparsity` is the share of a ReLU's results that are 0 (it varies in training). With `bits` of
    16, 10 or 8, values have this number of bits once the forward pass has read them (section 4.3).
    """

    lossless: bool = True
    bits: Literal[32, 16, 10, 8] = 32
    sparsity: Annotated[float, Ge(0), Lt(1)] = 0.0

    def __post_init__(self) -> None:
        if not self.lossless and self.bits == 32:
            raise ValueError("lossless = false and bits = 32 encode nothing; set bits = 16")


class Map(NamedTuple):
    """A feature map: its `elements`, what the backward pass `reads` of it, and for a pooled map the
    number of elements in a `window`."""

    elements: float
    reads: Reads = "values"
    window: int = 1


class Kept(NamedTuple):
    """Bytes of a map between the passes, and the kernels that encode and decode it."""

    bytes: float
    encode: tuple[MemoryBound, ...] = ()
    decode: tuple[MemoryBound, ...] = ()
    whole: float = 0.0  # bytes that decoding brings back


def kept(map_: Map, width: float, stash: Stash | None) -> Kept:
    """Return how a map with values of `width` bytes is kept: encoded if the code is smaller.

    >>> kept(Map(1024.0, "signs"), 4, Stash()).bytes, kept(Map(1024.0, "sparse"), 4, None).bytes
    (128.0, 4096.0)
    """
    whole = map_.elements * width if map_.reads != "places" else 0.0
    size = _size(map_, width, stash) if stash else whole
    if stash is None or size >= whole > 0.0:
        return Kept(whole)
    read = max(whole, map_.elements * width)
    encode = MemoryBound(name=f"encode {map_.reads}", bytes=read + size)
    if map_.reads in ("signs", "places"):  # The backward kernels read these codes directly.
        return Kept(size, (encode,))
    decode = MemoryBound(name=f"decode {map_.reads}", bytes=size + whole)
    return Kept(size, (encode,), (decode,), whole)


def _size(map_: Map, width: float, stash: Stash) -> float:
    narrow = min(width, _BYTES[stash.bits])
    if not stash.lossless:
        return map_.elements * narrow * (map_.reads != "places")
    if map_.reads == "signs":
        return map_.elements / 8
    if map_.reads == "places":
        return map_.elements / 2
    values = map_.elements * narrow
    if map_.reads == "values":
        return values
    # The maximum of a window is 0 if all its elements are 0; they are taken as independent.
    filled = map_.elements * (1.0 - stash.sparsity**map_.window)
    return min(values, filled * (narrow + 1) + map_.elements / _ROW * 4)


_BYTES = {32: 4.0, 16: 2.0, 10: 4 / 3, 8: 1.0}  # three 10-bit values share a word of 4 bytes
