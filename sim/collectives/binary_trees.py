"""Two binary trees whose inner ranks are disjoint, and the rounds in which data move along them.

Sanders, Speck and Traeff 2009, section 2."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache

from sim.collectives.schedule import (
    ChunkSend,
    CollectiveKind,
)

Parents = tuple[int, ...]


@cache
def parents(ranks: int) -> tuple[Parents, Parents]:
    """Each rank's parent in both trees; a root is its own parent.

    In the first tree a rank's height is the number of zeros at the end of its binary index, so odd
    ranks are leaves. The second tree is the mirror image of the first (shifted by one for an odd
    number of ranks), so odd ranks are inner nodes.

    >>> parents(4)
    ((0, 2, 0, 2), (1, 3, 1, 3))
    """
    first = tuple(_parent(rank, ranks) for rank in range(ranks))
    if ranks % 2 == 0:
        second = tuple(ranks - 1 - first[ranks - 1 - rank] for rank in range(ranks))
    else:
        second = tuple((first[(rank - 1) % ranks] + 1) % ranks for rank in range(ranks))
    return first, second


def _parent(rank: int, ranks: int) -> int:
    if rank == 0:
        return 0
    bit = rank & -rank
    above = (rank ^ bit) | (bit << 1)
    return above if above < ranks else rank ^ bit


def rooted(ranks: int) -> tuple[Parents, Parents]:
    """Two trees over ranks 1..n-1, both fed by rank 0 (Sanders et al., section 2).

    >>> rooted(5)
    ((0, 0, 3, 1, 3), (0, 2, 4, 2, 0))
    """
    first, second = (
        (0, *(0 if tree[i] == i else tree[i] + 1 for i in range(ranks - 1)))
        for tree in parents(ranks - 1)
    )
    return first, second


def chained(nodes: int, per_node: int) -> tuple[Parents, Parents]:
    """Trees between the first members of nodes, and a chain through each node, as in NCCL.

    >>> chained(2, 3)
    ((0, 0, 1, 0, 3, 4), (3, 0, 1, 3, 3, 4))
    """
    first, second = (
        tuple(
            rank - 1 if rank % per_node else tree[rank // per_node] * per_node
            for rank in range(nodes * per_node)
        )
        for tree in parents(nodes)
    )
    return first, second


@cache
def depths(tree: Parents) -> tuple[int, ...]:
    """Each rank's distance from the root.

    >>> depths(parents(8)[0])
    (0, 3, 2, 3, 1, 3, 2, 3)
    """
    distances = [0] * len(tree)
    for rank in range(len(tree)):
        above = rank
        while tree[above] != above:
            above = tree[above]
            distances[rank] += 1
    return tuple(distances)


RoundSend = tuple[int, ChunkSend]


def in_both(
    trees: Sequence[Parents], pieces: int, sends: Callable[[Parents, int], Iterator[RoundSend]]
) -> list[list[ChunkSend]]:
    """The rounds of both trees; the second tree sends the chunks from number `pieces` on."""
    rounds: dict[int, list[ChunkSend]] = {}
    for half, tree in enumerate(trees):
        for when, send in sends(tree, half * pieces):
            rounds.setdefault(when, []).append(send)
    return [rounds[when] for when in sorted(rounds)]


def down(tree: Parents, first: int, pieces: int, start: int = 0) -> Iterator[RoundSend]:
    for rank, depth in enumerate(depths(tree)):
        if depth:
            for piece in range(pieces):
                yield start + depth - 1 + piece, ChunkSend(tree[rank], rank, first + piece)


def up(tree: Parents, first: int, pieces: int) -> Iterator[RoundSend]:
    lowest = max(depths(tree))
    for rank, depth in enumerate(depths(tree)):
        if depth:
            for piece in range(pieces):
                yield lowest - depth + piece, ChunkSend(rank, tree[rank], first + piece, True)


def up_and_down(tree: Parents, first: int, pieces: int) -> Iterator[RoundSend]:
    yield from up(tree, first, pieces)
    yield from down(tree, first, pieces, start=max(depths(tree)))


def busiest(
    kind: CollectiveKind, trees: Sequence[Parents], low: int, pieces: int, when: int
) -> int:
    """The most pieces that any rank sends, or receives, in round `when`."""
    out, into = [0] * len(trees[0]), [0] * len(trees[0])
    for tree in trees:
        for rank, depth in enumerate(depths(tree)):
            sends = kind != "broadcast" and low - depth <= when < low - depth + pieces
            start = depth - 1 + (low if kind == "all_reduce" else 0)
            receives = kind != "reduce" and start <= when < start + pieces
            if depth and sends:
                out[rank] += 1
                into[tree[rank]] += 1
            if depth and receives:
                out[tree[rank]] += 1
                into[rank] += 1
    return max(out + into)
