"""Pieces of a pass: one block each, with what it executes and what it does to memory."""

from collections.abc import Sequence
from dataclasses import dataclass

from sim.model.block import Block
from sim.program.memory import MemoryUse, in_a_row
from sim.program.operations import Work


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """A block, the work of one pass through it, and its use of memory."""

    block: Block
    work: Work
    memory: MemoryUse


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """Pieces in a row as one operation."""

    work: Work
    memory: MemoryUse


def joined(pieces: Sequence[Piece], *, name: str) -> Joined:
    """The work and the use of memory of pieces in a row."""
    return Joined(
        Work(name=name, items=tuple(piece.work for piece in pieces)),
        in_a_row(piece.memory for piece in pieces),
    )
