"""A pipeline schedule: the order of every stage's actions, and where the model's pieces lie.

A schedule does not know times. Piece 0 of the model holds the embedding, the last piece the head. A
microbatch goes forward through all pieces in order and back the same way.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from sim.config.dataclass import dataclass

Kind = Literal["F", "B", "I", "W"]
KINDS: tuple[Kind, ...] = get_args(Kind)
NAMES: Mapping[str, str] = {
    "F": "forward",
    "B": "backward",
    "I": "input gradients",
    "W": "weight gradients",
}


class Action(NamedTuple):
    """A pass of one microbatch, forward or backward, through one of a stage's chunks.

    >>> print(Action("F", 3), Action("W", 0, chunk=1))
    F3.0 W0.1
    """

    kind: Kind
    microbatch: int
    chunk: int = 0

    def __str__(self) -> str:
        return f"{self.kind}{self.microbatch}.{self.chunk}"


def read(words: str) -> Iterator[tuple[Kind, int]]:
    """Yield the kind and the chunk of each action in a text such as "F0 W1".

    >>> list(read("F0 W1"))
    [('F', 0), ('W', 1)]
    """
    for word in words.split():
        yield KINDS["FBIW".index(word[0])], int(word[1:])


class PassVariant(NamedTuple):
    """The properties of a stage's pass that determine its work. Passes of equal variants do equal
    work on different microbatches.

    `first` marks the first forward pass of a chunk in a step, and the first pass that makes the
    chunk's weight gradients; `last` marks the last pass that makes them. `beside` is the kind and
    the chunk of the pass that this pass overlaps.
    """

    kind: Kind
    chunk: int
    first: bool = False
    last: bool = False
    beside: tuple[Kind, int] | None = None

    @property
    def makes_gradients(self) -> bool:
        """Whether the pass makes gradients of weights."""
        return self.kind in ("B", "W")


Indices = NDArray[np.int64]
Order = tuple[Action, ...]
Places = tuple[tuple[int, ...], ...]  # [stage][chunk] -> piece
Place = tuple[int, int]  # stage and chunk

_LETTERS = sorted(KINDS)


def in_loops(stages: int, chunks: int) -> Places:
    """Return places in which chunk c of stage s (of p stages) is piece c p + s, as in Narayanan et
    al. 2021, section 2.2.

    >>> in_loops(2, 2)
    ((0, 2), (1, 3))
    """
    return tuple(tuple(c * stages + s for c in range(chunks)) for s in range(stages))


@dataclass(frozen=True, slots=True, eq=False)
class Actions:
    """The actions of one stage as arrays: kinds (letters), microbatches and chunks in order.

    `variants` are the distinct variants of the passes, `rows` the index of each action's variant.
    """

    kinds: NDArray[np.str_]
    microbatches: Indices
    chunks: Indices
    variants: tuple[PassVariant, ...]
    rows: Indices


@dataclass(frozen=True)
class Schedule:
    """The actions of each stage in order (`orders`), and the piece of the model in each chunk of a
    stage (`pieces`).

    Several stages may hold the same piece; the orders then decide which microbatches pass which
    stage. `pairs` are the places in each stage's order at which a pass overlaps the pass after it:
    a forward and a backward pass. If a pipeline does not drain between steps, a schedule has
    several `steps` of equally many microbatches, and `base` is the schedule with fewer steps. The
    further steps take the time that the schedule takes beyond its base.
    """

    orders: tuple[Order, ...]
    pieces: Places
    name: str = "custom"
    pairs: tuple[frozenset[int], ...] = ()
    steps: int = 1
    base: "Schedule | None" = None

    def __hash__(self) -> int:
        """Return a hash of a few short fields, since orders are long."""
        return hash((self.name, self.pieces, len(self.orders[0]), len(self.pairs), self.steps))

    @property
    def stages(self) -> int:
        return len(self.orders)

    @property
    def chunks(self) -> int:
        """Chunks of a stage."""
        return len(self.pieces[0])

    def in_a_row(self, times: int) -> "Schedule":
        """Return the schedule `times` times in a row, each time with further microbatches."""
        if times == 1:
            return self
        each = 1 + max(action.microbatch for action in self.orders[0])
        later = [each * number for number in range(times)]
        orders = tuple(
            tuple(a._replace(microbatch=a.microbatch + n) for n in later for a in order)
            for order in self.orders
        )
        pairs = tuple(
            frozenset(place + len(order) * number for number in range(times) for place in pair)
            for order, pair in zip(self.orders, self.pairs, strict=False)
        )
        return replace(self, orders=orders, pairs=pairs)

    @cached_property
    def splits_backward(self) -> bool:
        """Whether input and weight gradients are passes of their own."""
        return any((actions.kinds == "I").any() for actions in self.actions)

    @cached_property
    def cuts(self) -> int:
        """How many pieces the model is cut into."""
        return 1 + max(max(piece) for piece in self.pieces)

    @cached_property
    def ways(self) -> tuple[tuple[Place, ...], ...]:
        """The ways through the model. A way has a place (stage and chunk) for each piece in turn.
        There are several ways if several places hold a piece; each microbatch goes one way."""
        holders: dict[int, list[Place]] = defaultdict(list)
        for stage, pieces in enumerate(self.pieces):
            for chunk, piece in enumerate(pieces):
                holders[piece].append((stage, chunk))
        rows = [holders[piece] for piece in range(self.cuts)]
        if len(rows[0]) == 1:
            return (tuple(row[0] for row in rows),)
        return tuple(self._way(start, rows[1:]) for start in rows[0])

    def _way(self, start: Place, rows: Sequence[Sequence[Place]]) -> tuple[Place, ...]:
        """The way that begins at a place: the way of the first microbatch that begins there."""
        microbatch = self._forward[start][0]
        behind = (next(at for at in row if microbatch in self._forward[at]) for row in rows)
        return (start, *behind)

    @cached_property
    def _forward(self) -> dict[Place, list[int]]:
        """The microbatches that go forward through each place, in order."""
        numbers: dict[Place, list[int]] = defaultdict(list)
        for stage, order in enumerate(self.orders):
            for action in order:
                if action.kind == "F":
                    numbers[stage, action.chunk].append(action.microbatch)
        return numbers

    def borders(self) -> Iterator[tuple[Place, Place]]:
        """Yield the pairs of places between which microbatches pass, in the order of the model."""
        for way in self.ways:
            yield from pairwise(way)

    @cached_property
    def _beside(self) -> dict[tuple[Place, int], Place]:
        """For each place, the place before it on its way (key -1) and the place after it (1)."""
        pairs = list(self.borders())
        return {(here, 1): there for here, there in pairs} | {
            (there, -1): here for here, there in pairs
        }

    def source(self, stage: int, action: Action) -> Place | None:
        """Return the stage and chunk from which an action receives its input, or None."""
        return self._neighbour(stage, action, forward=-1)

    def target(self, stage: int, action: Action) -> Place | None:
        """Return the stage and chunk to which an action's output goes, or None."""
        return self._neighbour(stage, action, forward=1)

    def _neighbour(self, stage: int, action: Action, *, forward: int) -> Place | None:
        if action.kind == "W":
            return None
        step = forward if action.kind == "F" else -forward
        return self._beside.get(((stage, action.chunk), step))

    @cached_property
    def actions(self) -> tuple[Actions, ...]:
        """The orders as arrays."""
        count = 1 + max(action.microbatch for action in self.orders[0])
        return tuple(_actions(self.orders, self.pairs, count // self.steps))

    @cached_property
    def rows(self) -> tuple[Indices, Indices]:
        """The variant number of each action of all stages in a row, and the index at which each
        stage's actions begin. Numbers of variants continue from stage to stage."""
        counts = np.array([len(action.variants) for action in self.actions])
        lengths = np.array([len(action.rows) for action in self.actions])
        first = np.cumsum(counts) - counts
        rows = [action.rows + number for action, number in zip(self.actions, first, strict=True)]
        return np.concatenate(rows), np.cumsum(lengths) - lengths


def _actions(
    orders: Sequence[Order], pairs: Sequence[frozenset[int]], each: int
) -> Iterator[Actions]:
    """Yield the actions of each stage; a step has `each` microbatches."""
    lengths = np.array([len(order) for order in orders])
    starts = np.cumsum(lengths) - lengths
    listed = [action for order in orders for action in order]
    letters, *numbers = zip(*listed, strict=True)
    kinds = np.frombuffer("".join(letters).encode("utf-32-le"), dtype="U1")
    microbatches, chunks = map(np.array, numbers)
    stage, most = np.repeat(np.arange(len(orders)), lengths), chunks.max() + 1
    places = _codes(kinds) * most + chunks
    forward, weights = kinds == "F", (kinds == "B") | (kinds == "W")
    ways = (stage * most + chunks) * 3 + forward + 2 * weights  # a chunk and a direction
    first, last = _ends(ways * (microbatches.max() + 1) + microbatches // each)
    first, last = first & (forward | weights), last & weights
    codes = (places * 2 + first) * 2 + last
    paired = [place + start for pair, start in zip(pairs, starts, strict=False) for place in pair]
    beside = _partners(places, sorted(paired), (first & forward) | last)
    codes = codes * (beside.max() + 2) + beside + 1
    found, chosen, rows = np.unique(
        stage * (codes.max() + 1) + codes, return_index=True, return_inverse=True
    )
    bounds = np.searchsorted(found, np.arange(len(orders) + 1) * (codes.max() + 1)).tolist()
    partners = [divmod(int(beside[place]), int(most)) for place in chosen]
    variants = [
        PassVariant(
            listed[place].kind,
            listed[place].chunk,
            bool(first[place]),
            bool(last[place]),
            None if beside[place] < 0 else (_LETTERS[letter], chunk),
        )
        for place, (letter, chunk) in zip(chosen.tolist(), partners, strict=True)
    ]
    for number, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        here, (low, high) = slice(start, start + length), bounds[number : number + 2]
        used = tuple(variants[low:high])
        yield Actions(kinds[here], microbatches[here], chunks[here], used, rows[here] - low)


def _ends(keys: Indices) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return whether each key is the first, and whether it is the last, among equal keys."""
    order = np.argsort(keys, kind="stable")
    changes = np.diff(keys[order], prepend=-1) != 0
    first, last = np.empty((2, len(order)), dtype=bool)
    first[order], last[order] = changes, np.append(changes[1:], True)
    return first, last


def _codes(kinds: NDArray[np.str_]) -> Indices:
    """Return the index of each letter among the letters of all kinds."""
    codes: Indices = np.searchsorted([ord(letter) for letter in _LETTERS], kinds.view(np.uint32))
    return codes


def _partners(codes: Indices, paired: Sequence[int], alone: NDArray[np.bool_]) -> Indices:
    """Return the code of the action that each action overlaps, or -1. Passes that are `alone`, the
    first forward and the last backward pass of a step, have further work and overlap none."""
    beside = np.full(len(codes), -1, dtype=np.int64)
    some = np.array(paired, dtype=np.int64)
    some = some[~alone[some] & ~alone[some + 1]]
    beside[some], beside[some + 1] = codes[some + 1], codes[some]
    return beside
