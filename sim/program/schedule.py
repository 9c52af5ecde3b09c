"""A pipeline schedule: the order of every stage's actions, and where the model's pieces lie.

It says nothing of time. Piece 0 of the model holds the embedding, the last one the head; a
microbatch goes forward through all pieces in order and back the same way.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sim.program.actions import KINDS, Action, Occasion

Indices = NDArray[np.int64]
Order = tuple[Action, ...]
Places = tuple[tuple[int, ...], ...]  # [stage][chunk] -> piece

_LETTERS = np.array(sorted(KINDS))


def in_loops(stages: int, chunks: int) -> Places:
    """Chunk c of stage s is piece c p + s, as in Narayanan et al. 2021, section 2.2.

    >>> in_loops(2, 2)
    ((0, 2), (1, 3))
    """
    return tuple(tuple(c * stages + s for c in range(chunks)) for s in range(stages))


def in_a_v(stages: int) -> Places:
    """Two chunks a stage, the second on the way back: the first stage also holds the head.

    Source: Qi et al. 2024, arXiv 2405.15362, figure 3.

    >>> in_a_v(3)
    ((0, 5), (1, 4), (2, 3))
    """
    return tuple((s, 2 * stages - 1 - s) for s in range(stages))


@dataclass(frozen=True, slots=True, eq=False)
class Actions:
    """The actions of one stage as arrays: kinds (letters), microbatches and chunks in order.

    `occasions` are the distinct ones, `rows` which of them each action is.
    """

    kinds: NDArray[np.str_]
    microbatches: Indices
    chunks: Indices
    occasions: tuple[Occasion, ...]
    rows: Indices


@dataclass(frozen=True, eq=False)
class Schedule:
    """`orders` holds the actions of each stage, `pieces` the place of each of its chunks."""

    orders: tuple[Order, ...]
    pieces: Places
    name: str = "custom"

    @property
    def stages(self) -> int:
        return len(self.orders)

    @property
    def chunks(self) -> int:
        """Chunks of a stage."""
        return len(self.pieces[0])

    @cached_property
    def owners(self) -> tuple[tuple[int, int], ...]:
        """Per piece of the model its stage and chunk."""
        places = {
            piece: (stage, chunk)
            for stage, pieces in enumerate(self.pieces)
            for chunk, piece in enumerate(pieces)
        }
        return tuple(places[piece] for piece in range(len(places)))

    def source(self, stage: int, action: Action) -> tuple[int, int] | None:
        """Stage and chunk that the input of an action comes from, if it comes from any."""
        return self._neighbour(stage, action, forward=-1)

    def target(self, stage: int, action: Action) -> tuple[int, int] | None:
        """Stage and chunk that the output of an action goes to, if it goes to any."""
        return self._neighbour(stage, action, forward=1)

    def _neighbour(self, stage: int, action: Action, *, forward: int) -> tuple[int, int] | None:
        if action.kind == "W":
            return None
        step = forward if action.kind == "F" else -forward
        piece = self.pieces[stage][action.chunk] + step
        return self.owners[piece] if 0 <= piece < len(self.owners) else None

    @cached_property
    def actions(self) -> tuple[Actions, ...]:
        """The orders as arrays."""
        return tuple(_actions(order) for order in self.orders)

    @cached_property
    def rows(self) -> tuple[Indices, Indices]:
        """The occasions of all stages' actions, numbered on from stage to stage, and where each
        stage's actions begin."""
        counts = np.array([len(own.occasions) for own in self.actions])
        lengths = np.array([len(own.rows) for own in self.actions])
        first = np.cumsum(counts) - counts
        rows = [own.rows + number for own, number in zip(self.actions, first, strict=True)]
        return np.concatenate(rows), np.cumsum(lengths) - lengths


def _actions(order: Order) -> Actions:
    letters, *numbers = zip(*order, strict=True)
    kinds = np.frombuffer("".join(letters).encode("utf-32-le"), dtype="U1")
    microbatches, chunks = map(np.array, numbers)
    forward, weights = kinds == "F", (kinds == "B") | (kinds == "W")
    first, last = np.zeros((2, len(order)), dtype=bool)
    for chunk in np.unique(chunks).tolist():
        for passes in (forward, weights):
            places = np.flatnonzero(passes & (chunks == chunk))
            first[places[:1]] = True
        last[places[-1:]] = True
    codes = (
        (np.searchsorted(_LETTERS, kinds) * (chunks.max() + 1) + chunks) * 2 + first
    ) * 2 + last
    _, places, rows = np.unique(codes, return_index=True, return_inverse=True)
    occasions = tuple(
        Occasion(order[place].kind, order[place].chunk, bool(first[place]), bool(last[place]))
        for place in places.tolist()
    )
    return Actions(kinds, microbatches, chunks, occasions, rows.astype(np.int64))
