"""A pipeline schedule: in which order every stage runs its actions, and where the model's pieces lie.

It says nothing of time. Piece 0 of the model holds the embedding, the last one the head; a
microbatch goes forward through all pieces in order and back the same way.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from sim.program.actions import Action, Occasion

Order = tuple[Action, ...]
Places = tuple[tuple[int, ...], ...]  # [stage][chunk] -> piece


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


@dataclass(frozen=True, eq=False)
class Schedule:
    """`orders` holds the actions of each stage, `pieces` the place of each of its chunks."""

    orders: tuple[Order, ...]
    pieces: Places
    name: str = "custom"
    notes: tuple[str, ...] = field(default=())

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
    def occasions(self) -> tuple[tuple[Occasion, ...], ...]:
        """Per stage the occasion of every action, in order."""
        return tuple(_occasions(order) for order in self.orders)


def _occasions(order: Sequence[Action]) -> tuple[Occasion, ...]:
    first: dict[tuple[bool, int], int] = {}
    last: dict[int, int] = {}
    for place, action in enumerate(order):
        if action.kind == "F" or action.makes_weight_gradients:
            first.setdefault((action.kind == "F", action.chunk), place)
        if action.makes_weight_gradients:
            last[action.chunk] = place
    firsts, lasts = set(first.values()), set(last.values())
    return tuple(
        Occasion(action.kind, action.chunk, place in firsts, place in lasts)
        for place, action in enumerate(order)
    )
