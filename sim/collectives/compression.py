"""Compression of messages: bytes on the wire, time to encode, and the error.

With error feedback, a worker adds to each gradient the parts of earlier gradients that compression
left out (Seide et al. 2014; Karimireddy et al. 2019), so nothing is lost permanently.
"""

from collections.abc import Iterable, Sequence
from math import ceil, isqrt, prod
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sim.config.checked import refuse
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.units import Share

Vector = NDArray[np.float64]
Shapes = Sequence[tuple[int, ...]]
SumKind = Literal["all_reduce", "reduce_scatter", "all_gather"]
CompressionKind = Literal["none", "fp16", "int8", "fp4", "topk", "randomk", "powersgd", "onebit"]

# Bytes that encoding reads and writes, divided by the bytes of the gradient in fp32.
_PASSES: dict[str, float] = {
    "none": 0.0,
    "fp16": 1.5,  # read 4, write 2 bytes
    "int8": 2.25,  # read 4 for the scale, read 4, write 1
    "fp4": 2.125,  # read 4 for the scale, read 4, write 1/2
    "topk": 6.0,  # selection by radix (torch.topk reads the keys about five times)
    "randomk": 1.0,
    "powersgd": 4.0,  # two products with the matrix, orthogonalisation, the error
    "onebit": 3.0,  # means of both signs, then signs and the error
}
# The number of kernels that encode a message, from torch's default_hooks.py and powerSGD_hook.py
# (products and orthogonalisation batched by shape) and DeepSpeed's runtime/comm/nccl.py.
_KERNELS: dict[str, int] = {
    "none": 0,
    "fp16": 2,  # the cast and the division
    "int8": 5,  # magnitude, its maximum, division, rounding, the cast
    "fp4": 5,  # the same, with a logarithm in place of the division
    "topk": 7,  # the error, magnitude, three kernels of selection, values, the remaining error
    "randomk": 3,
    "powersgd": 5,  # the error, two products, orthogonalisation, the remaining error
    "onebit": 6,  # the error, the scale, signs, packing, unpacking, the remaining error
}
# Sums of these messages have the form of a message, so a ring can reduce them on the way.
REDUCIBLE = ("none", "fp16", "randomk", "powersgd")
# These messages are decoded, added and encoded again: the library's reduce-scatter adds pieces, and
# its all-gather spreads the sums (CGX, Markov et al. 2022; 1-bit Adam's compressed all-reduce, Tang
# et al. 2021; ZeRO++ inside nodes, then between nodes, Wang et al. 2023).
IN_ROUNDS = ("int8", "fp4", "onebit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compression:
    """The compression of messages: `[sharing.compression]`, `[plan.activations]`, or
    `[plan.gradients]`.

    - `fp16`, `int8` (one scale per message; Dettmers 2015), `fp4` (E3M0, a sign and a power of two,
      as for Streaming DiLoCo's outer gradients; Douillard et al. 2025), `onebit` (a sign
      for each element and the means of both signs; Seide et al. 2014).
    - `topk`: the largest elements, a share `ratio` of all, with indices of 4 bytes (Aji and
      Heafield 2017). `randomk`: as many random elements; all workers draw them from one seed.
    - `powersgd`: two factors of rank `rank` of every layer's matrix (Vogels et al. 2019); a matrix
      that is not larger than its factors is sent as it is.

    `feedback` adds the error to the next message, except for `fp16`.
    """

    kind: CompressionKind
    ratio: Share = 0.01
    rank: int = 4
    feedback: bool = True

    def __post_init__(self) -> None:
        if self.kind not in ("topk", "randomk"):
            refuse(self, f'have no effect on "{self.kind}"; set kind = "topk"', "ratio")
        if self.kind != "powersgd":
            refuse(self, f'have no effect on "{self.kind}"; set kind = "powersgd"', "rank")

    @property
    def reducible(self) -> bool:
        """Whether an all-reduce can add up compressed messages."""
        return self.kind in REDUCIBLE

    @property
    def in_rounds(self) -> bool:
        """Whether messages are summed piece by piece, and the sums are encoded again."""
        return self.kind in IN_ROUNDS

    def check(self, matrices: Iterable[tuple[int, int]], where: str) -> None:
        """Raise `InputError` if no matrix is larger than its factors of this rank."""
        shapes = list(matrices)
        if self.kind != "powersgd" or any(self.factors([shape], 0.0)[1] for shape in shapes):
            return
        most = max((max(1, (r * c - 1) // (r + c)) for r, c in shapes), default=1)
        fault = f"rank = {self.rank} is too large: factors of this rank shrink no matrix"
        raise InputError(where, fault, f"set rank to at most {most}")

    def sums(
        self, elements: float, width: float, ranks: int, matrices: Iterable[tuple[int, int]]
    ) -> tuple[tuple[SumKind, float], ...]:
        """The collectives that add up the messages of all ranks, one after the other, and their
        bytes.

        >>> Compression(kind="int8").sums(1e6, 4.0, 8, ())
        (('reduce_scatter', 1000004.0), ('all_gather', 1000004.0))
        """
        if self.kind == "powersgd":
            return tuple(("all_reduce", size) for size in self.factors(matrices, elements, width))
        size = self.bytes(elements, width)
        if self.reducible:
            return (("all_reduce", size),)
        if self.in_rounds:
            return (("reduce_scatter", size), ("all_gather", size))
        return (("all_gather", size * ranks),)

    def read(self, ranks: int) -> int:
        """How much a rank decodes to get the sum over all ranks, in lengths of a message: 1 for a
        sum, 2 for pieces of all messages and their sums, otherwise `ranks`."""
        return 1 if self.reducible else 2 if self.in_rounds else ranks

    def message(self, elements: float, width: float, matrices: Iterable[tuple[int, int]]) -> float:
        """Bytes of one message of `elements` elements, which include the `matrices`."""
        if self.kind == "powersgd":
            return sum(self.factors(matrices, elements, width))
        return self.bytes(elements, width)

    @property
    def keeps_error(self) -> bool:
        """Whether a rank keeps the error of its messages, an element for each gradient. A cast to
        fp16 keeps none (torch, default_hooks.py, `fp16_compress_hook`)."""
        return self.kind not in ("none", "fp16") and self.feedback

    @property
    def kernels(self) -> int:
        """How many kernels are launched to encode a message."""
        return _KERNELS[self.kind]

    def bytes(self, elements: float, width: float = 4.0) -> float:
        """Bytes of one message of `elements` elements of `width` bytes.

        >>> [Compression(kind=k).bytes(1e6) for k in ("none", "fp16", "int8", "onebit", "topk")]
        [4000000.0, 2000000.0, 1000004.0, 125008.0, 80000.0]
        """
        kept = float(ceil(self.ratio * elements))
        if self.kind == "powersgd":
            rows, columns = matrix_shape(int(elements))
            return min(self.rank * (rows + columns) * width, elements * width)
        return {
            "none": elements * width,
            "fp16": elements * min(width, 2.0),
            "int8": elements + 4.0,
            "fp4": ceil(elements / 2) + 4.0,
            "onebit": ceil(elements / 8) + 8.0,
            "topk": kept * (width + 4.0),
            "randomk": kept * width,
        }[self.kind]

    def factors(
        self, matrices: Iterable[tuple[int, int]], elements: float, width: float = 4.0
    ) -> tuple[float, float]:
        """Bytes of the left and of the right factors of the matrices among `elements` elements. The
        left bytes include matrices that factors would not shrink, and elements of no matrix.

        >>> Compression(kind="powersgd", rank=2).factors([(100, 300), (1, 3)], 30_050.0)
        (1000.0, 2400.0)
        """
        left = right = 0.0
        for rows, columns in matrices:
            if self.rank * (rows + columns) < rows * columns:
                left, right = left + self.rank * rows, right + self.rank * columns
                elements -= rows * columns
        return (left + elements) * width, right * width

    def encode_bytes(self, elements: float) -> float:
        """Bytes that encoding moves through the device's memory."""
        return _PASSES[self.kind] * 4.0 * elements

    def decode_bytes(self, elements: float, messages: int = 1) -> float:
        """Bytes that decoding moves: each message is read and added to fp32 elements.

        >>> [Compression(kind=k).decode_bytes(1e6, 2) for k in ("none", "fp16", "topk")]
        [0.0, 20000000.0, 320000.0]
        """
        if self.kind == "none":
            return 0.0
        touched = self.ratio if self.kind in ("topk", "randomk") else 1.0
        return messages * (self.bytes(elements) + 8.0 * touched * elements)

    def encode(
        self, vector: Vector, error: Vector, seed: tuple[int, ...], shapes: Shapes = ()
    ) -> tuple[Vector, Vector]:
        """The vector that the receiver decodes, and the error that remains."""
        if self.kind == "none":
            return vector, error
        wanted = vector + error if self.keeps_error else vector
        sent = self.lossy(wanted, seed, shapes)
        return sent, (wanted - sent if self.keeps_error else error)

    def lossy(self, vector: Vector, seed: tuple[int, ...] = (0,), shapes: Shapes = ()) -> Vector:
        """A vector as the receiver decodes it. The vector holds all tensors of these `shapes`, one
        after the other; without shapes it is treated as one matrix.

        >>> Compression(kind="topk", ratio=0.5).lossy(np.array([3.0, -1.0, 0.5, -4.0]))
        array([ 3.,  0.,  0., -4.])
        """
        if self.kind == "none" or not vector.size:
            return vector
        if self.kind == "fp16":
            return vector.astype(np.float16).astype(np.float64)
        if self.kind == "int8":
            scale = float(np.abs(vector).max()) / 127.0 or 1.0
            return np.round(vector / scale) * scale
        if self.kind == "fp4":
            return _powers_of_two(vector)
        if self.kind == "onebit":
            return _onebit(vector)
        if self.kind == "powersgd":
            return self._factored(vector, seed, shapes)
        count = ceil(self.ratio * vector.size)
        if self.kind == "topk":
            indices = np.argpartition(np.abs(vector), -count)[-count:]
        else:
            indices = np.random.default_rng(seed).choice(vector.size, count, replace=False)
        sent = np.zeros_like(vector)
        sent[indices] = vector[indices]
        return sent

    def _factored(self, vector: Vector, seed: tuple[int, ...], shapes: Shapes) -> Vector:
        """Every tensor of two dimensions or more as the product of its factors, where the factors
        are smaller. The tensor's matrix has its first dimension as rows and all others as columns
        (Vogels et al. 2019; torch's powerSGD_hook.py, `view(tensor.shape[0], -1)`)."""
        if not shapes:
            return _low_rank(vector, matrix_shape(vector.size), self.rank, seed)
        parts = np.split(vector, np.cumsum([prod(shape) for shape in shapes])[:-1])
        sent = [
            _low_rank(part, (shape[0], part.size // shape[0]), self.rank, seed)
            if len(shape) > 1 and self.rank * (shape[0] + part.size // shape[0]) < part.size
            else part
            for part, shape in zip(parts, shapes, strict=True)
        ]
        return np.concatenate(sent)


def matrix_shape(elements: int) -> tuple[int, int]:
    """Rows and columns of the squarest matrix that holds `elements` elements.

    >>> matrix_shape(12), matrix_shape(10)
    ((3, 4), (3, 4))
    """
    rows = max(isqrt(elements), 1)
    return rows, -(-elements // rows)


def _powers_of_two(vector: Vector) -> Vector:
    """E3M0: each element becomes the nearest of 0 and 1, 1/2, ... 1/64 of the largest magnitude.

    >>> _powers_of_two(np.array([64.0, -40.0, 1.0, 0.4]))
    array([ 64., -32.,   1.,   0.])
    """
    most = float(np.abs(vector).max())
    if not most:
        return vector
    magnitude = np.abs(vector) / most
    exponent = np.floor(np.log2(np.maximum(magnitude, 2.0**-8) / 0.75))
    powers = np.where(magnitude < 2.0**-7, 0.0, 2.0 ** np.maximum(exponent, -6.0))
    return np.asarray(np.sign(vector) * powers * most)


def _onebit(vector: Vector) -> Vector:
    positive = vector >= 0
    means = [float(vector[side].mean()) if side.any() else 0.0 for side in (positive, ~positive)]
    return np.where(positive, means[0], means[1])


def _low_rank(vector: Vector, shape: tuple[int, int], rank: int, seed: tuple[int, ...]) -> Vector:
    """P Q' after a step of subspace iteration on the matrix M: P = M Q, orthogonal; Q = M' P."""
    rows, columns = shape
    padded = np.zeros(rows * columns)
    padded[: vector.size] = vector
    matrix = padded.reshape(rows, columns)
    start = np.random.default_rng(seed[:1]).standard_normal((columns, min(rank, rows)))
    left, _ = np.linalg.qr(matrix @ start)
    return np.asarray(left @ (left.T @ matrix)).ravel()[: vector.size]
