"""What one worker computes in a step: seconds and parameters, layer by layer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A layer, or several: seconds of its passes and the parameters whose gradients it gives."""

    forward: float
    backward: float
    parameters: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One step of one worker on an idle device: pieces in forward order, then the optimizer.

    `width` is bytes of a parameter (and of a gradient) on the wire, `batch` the samples of a step,
    `inputs` the bytes of one sample, `launches` the host's seconds of a forward pass, `memory` the
    bandwidth of the device's memory (B/s) where it is not the machine's.
    """

    pieces: tuple[Piece, ...]
    optimizer: float = 0.0
    width: float = 4.0
    batch: int = 1
    inputs: float = 0.0
    launches: float = 0.0
    memory: float = 0.0

    @classmethod
    def plain(cls, seconds: float, parameters: float, **options: float) -> "Workload":
        """One piece of so many seconds, a third of them forward."""
        piece = Piece(forward=seconds / 3, backward=seconds * 2 / 3, parameters=parameters)
        return cls(pieces=(piece,), **options)  # type: ignore[arg-type]

    @property
    def forward(self) -> float:
        return sum(piece.forward for piece in self.pieces)

    @property
    def backward(self) -> float:
        return sum(piece.backward for piece in self.pieces)

    @property
    def seconds(self) -> float:
        return self.forward + self.backward

    @property
    def parameters(self) -> float:
        return sum(piece.parameters for piece in self.pieces)

    @property
    def bytes(self) -> float:
        """Bytes of all gradients, or of all weights."""
        return self.parameters * self.width


def grouped(pieces: Sequence[Piece], *, parameters: float) -> tuple[Piece, ...]:
    """Pieces joined, from the last, into groups of at least so many parameters; in forward order.

    >>> layer = Piece(forward=1.0, backward=2.0, parameters=5.0)
    >>> [group.parameters for group in grouped([layer] * 3, parameters=8.0)]
    [5.0, 10.0]
    """
    return tuple(reversed(list(_groups(pieces, parameters))))


def _groups(pieces: Sequence[Piece], parameters: float) -> Iterator[Piece]:
    held: list[Piece] = []
    for piece in reversed(pieces):
        held.append(piece)
        if sum(one.parameters for one in held) >= parameters:
            yield _joined(held)
            held = []
    if held:
        yield _joined(held)


def _joined(pieces: Sequence[Piece]) -> Piece:
    return Piece(
        forward=sum(piece.forward for piece in pieces),
        backward=sum(piece.backward for piece in pieces),
        parameters=sum(piece.parameters for piece in pieces),
    )
