"""Collectives as rounds of sends; every algorithm is written this way.

A module of `sim.collectives.algorithms` offers functions named like the collectives (`all_reduce`,
`all_gather`, ...). Each takes the number of ranks and returns a `CollectiveSchedule`. Tests execute
schedules on arrays. In `readings`, `condense` counts bytes and rounds, and `messages` makes a graph
for the clock. `sim.interface.plots.collective` draws schedules.
"""

from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.plugins import modules


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupShape:
    """How a group is placed: `ranks` members on `nodes`, at most `per_node` members on one node.
    On average, a hop from node to node takes `beyond` (s) more than a hop through one switch.

    >>> GroupShape.of(64, 8)
    GroupShape(ranks=64, nodes=8, per_node=8, beyond=0.0)
    """

    ranks: int
    nodes: int = 1
    per_node: int = 0
    beyond: float = 0.0

    def __post_init__(self) -> None:
        if self.per_node == 0:
            object.__setattr__(self, "per_node", -(-self.ranks // self.nodes))
        if not 1 <= self.nodes <= self.ranks:
            raise ValueError(f"{self.ranks} ranks cannot be on {self.nodes} nodes")
        if not self.ranks <= self.per_node * self.nodes:
            raise ValueError(f"{self.nodes} nodes of {self.per_node} do not hold {self.ranks}")

    def evenly(self, algorithm: str) -> int:
        """How many members each node has. Raises `ValueError` where the numbers differ."""
        if self.ranks != self.nodes * self.per_node:
            raise ValueError(
                f"{algorithm} needs equally many members on each node, not {self.ranks} on "
                f"{self.nodes} nodes of {self.per_node}; choose ring, or a group that fills nodes"
            )
        return self.per_node

    @classmethod
    def of(cls, ranks: int, per_node: int) -> "GroupShape":
        """The shape of `ranks` members that fill nodes of `per_node` in order."""
        per_node = min(ranks, per_node)
        return cls(ranks=ranks, nodes=-(-ranks // per_node), per_node=per_node)


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelLoads:
    """Bytes on the wires for each byte of the collective, at the busiest member and node.

    `port` bytes pass a member's port each way and stay in the node. `nic` bytes leave a node and
    enter it, summed over the members on the node. The collective's bytes are as nccl-tests counts
    them: the all-reduced buffer, the gathered result, the buffer before reduce-scatter, one rank's
    whole buffer in all-to-all.
    """

    port: float
    nic: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelSteps:
    """Dependent messages on the longest path of a chunk: within nodes, and between them."""

    intra: int
    inter: int = 0


CollectiveKind = Literal[
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "all_to_all",
    "point_to_point",
    "gather",
    "scatter",
    "sendrecv",
]
KINDS: tuple[CollectiveKind, ...] = get_args(CollectiveKind)


@dataclass(frozen=True, slots=True)
class ChunkSend:
    """Chunk `chunk` goes from `src` to `dst`, which adds it to its own (`reduce`) or stores it."""

    src: int
    dst: int
    chunk: int
    reduce: bool = False


Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """Sends that happen at once, as arrays of equal length; iteration yields `ChunkSend`s.

    Rounds may share arrays: a ring of 4,096 ranks stores 33 million sends in one megabyte.
    """

    src: Indices
    dst: Indices
    chunk: Indices
    reduce: NDArray[np.bool_]

    @classmethod
    def of(cls, sends: "Iterable[ChunkSend] | Round") -> "Round":
        """A round of single sends."""
        if isinstance(sends, Round):
            return sends
        rows = [(send.src, send.dst, send.chunk, send.reduce) for send in sends]
        src, dst, chunk, reduce = np.array(rows, dtype=np.int64).reshape(-1, 4).T
        return cls(src, dst, chunk, reduce.astype(bool))

    def __len__(self) -> int:
        return len(self.src)

    def __iter__(self) -> Iterator[ChunkSend]:
        columns = (self.src, self.dst, self.chunk, self.reduce)
        return map(ChunkSend, *(column.tolist() for column in columns))


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveSchedule:
    """A collective among ranks 0..ranks-1; the sends of a round read the results of the round
    before.

    The buffer of S bytes is cut into `chunks` equal chunks; a send moves S / chunks bytes. The S
    bytes are the buffer that every rank reduces, the buffer of the root (rank 0), or the whole
    gathered or scattered buffer, whose part r is rank r's. For all_to_all S is the buffer of each
    rank, and chunk s * ranks + d of all ranks' chunks goes from s to d. For point_to_point S is the
    message from rank 0 to rank 1; for sendrecv S is the message to the next rank.
    """

    kind: CollectiveKind
    ranks: int
    chunks: int
    rounds: tuple[Round, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedForm:
    """T = rounds * alpha + (bytes + fill) * S / bandwidth, on an idle uniform network.

    `bytes` are the bytes that the busiest port sends (or receives) for each byte of S. `fill`
    counts the time in which ports idle while the pipeline fills and drains. It is the sum over
    rounds of the bytes of each round's busiest port, less `bytes`.
    """

    rounds: int
    bytes: float
    fill: float = 0.0

    def time(self, size: float, *, alpha: float, bandwidth: float) -> float:
        """Seconds for `size` bytes; `alpha` seconds per round, `bandwidth` B/s each way."""
        return self.rounds * alpha + (self.bytes + self.fill) * size / bandwidth


def schedule(
    kind: CollectiveKind, ranks: int, chunks: int, rounds: Iterable[Iterable[ChunkSend] | Round]
) -> CollectiveSchedule:
    """Collect the rounds of a generator, without empty rounds."""
    kept = tuple(filter(len, map(Round.of, rounds)))
    return CollectiveSchedule(kind=kind, ranks=ranks, chunks=chunks, rounds=kept)


def algorithms() -> dict[str, ModuleType]:
    """Every module of `sim.collectives.algorithms` that offers collectives, by name."""
    folder = modules("sim.collectives.algorithms")
    return {name: module for name, module in folder.items() if hasattr(module, "cost")}


def offered(algorithm: ModuleType) -> list[CollectiveKind]:
    """The collectives that an algorithm offers: its functions, or what switches compute."""
    switched: tuple[CollectiveKind, ...] = getattr(algorithm, "SWITCHED", ())
    return [kind for kind in KINDS if hasattr(algorithm, kind) or kind in switched]


def kind_named(name: str, where: str) -> CollectiveKind:
    """The collective of a name; "send" is a message to one peer. Raises `InputError`."""
    name = "point_to_point" if name == "send" else name
    for kind in KINDS:
        if kind == name:
            return kind
    raise InputError.unknown(where, f"no collective named {name!r}", name, KINDS)
