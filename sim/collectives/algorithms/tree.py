"""Double binary tree: two trees, each for half of the data, whose inner ranks are disjoint.

Sanders, Speck and Traeff 2009, "Two-tree algorithms for full bandwidth broadcast, reduction and
scan". NCCL has such trees between nodes since 2.4 (Jeaugey 2019). T, S, B, alpha: see `direct`.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache

from sim.collectives.schedule import (
    ChunkSend,
    ClosedForm,
    CollectiveKind,
    CollectiveSchedule,
    GroupShape,
    LevelLoads,
    LevelSteps,
    schedule,
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


def height(ranks: int) -> int:
    """Levels below the root of either tree: ceil(log2 n).

    >>> [height(n) for n in (1, 2, 3, 4, 5, 8)]
    [0, 1, 2, 2, 3, 3]
    """
    return max(ranks - 1, 0).bit_length()


def all_reduce(ranks: int, pieces: int = 4, per_node: int = 1) -> CollectiveSchedule:
    """Sums go up both trees and results down, in k `pieces` of each half, one after the other.

    A rank that is l levels above the leaves passes a piece on l rounds after the leaves. A result
    takes as many rounds down from the root. T = (k + 2h - 1) alpha + (bytes + fill) S/B, see
    `cost`; h is the trees' height.
    """
    trees = chained(ranks // per_node, per_node)
    rounds = _both(trees, pieces, lambda tree, half: _up_and_down(tree, half, pieces))
    return schedule("all_reduce", ranks, 2 * pieces, rounds)


def broadcast(ranks: int, pieces: int = 4) -> CollectiveSchedule:
    """Rank 0 feeds two trees over the other ranks: T = (k + h) alpha + (1 + fill) S/B."""
    rounds = _both(rooted(ranks), pieces, lambda tree, half: _down(tree, half, pieces))
    return schedule("broadcast", ranks, 2 * pieces, rounds)


def reduce(ranks: int, pieces: int = 4) -> CollectiveSchedule:
    """The broadcast backwards, summed on the way; it takes the same time."""
    rounds = _both(rooted(ranks), pieces, lambda tree, half: _up(tree, half, pieces))
    return schedule("reduce", ranks, 2 * pieces, rounds)


RoundSend = tuple[int, ChunkSend]


def _both(
    trees: Sequence[Parents], pieces: int, sends: Callable[[Parents, int], Iterator[RoundSend]]
) -> list[list[ChunkSend]]:
    """The rounds of both trees, of (round, send); tree 1 sends the chunks from `pieces` on."""
    rounds: dict[int, list[ChunkSend]] = {}
    for half, tree in enumerate(trees):
        for when, send in sends(tree, half * pieces):
            rounds.setdefault(when, []).append(send)
    return [rounds[when] for when in sorted(rounds)]


def _down(tree: Parents, first: int, pieces: int, start: int = 0) -> Iterator[RoundSend]:
    for rank, depth in enumerate(depths(tree)):
        if depth:
            for piece in range(pieces):
                yield start + depth - 1 + piece, ChunkSend(tree[rank], rank, first + piece)


def _up(tree: Parents, first: int, pieces: int) -> Iterator[RoundSend]:
    lowest = max(depths(tree))
    for rank, depth in enumerate(depths(tree)):
        if depth:
            for piece in range(pieces):
                yield lowest - depth + piece, ChunkSend(rank, tree[rank], first + piece, True)


def _up_and_down(tree: Parents, first: int, pieces: int) -> Iterator[RoundSend]:
    yield from _up(tree, first, pieces)
    yield from _down(tree, first, pieces, start=max(depths(tree)))


def cost(kind: CollectiveKind, ranks: int, pieces: int = 4) -> ClosedForm:
    """Rounds and bytes in closed form; the fill is summed over the trees' levels.

    A piece has S/(2k) bytes. `bytes` are the busiest port's in steady state: `between_nodes`, or
    two pieces a round in broadcasts and reduces. A tree fills and drains level by level.
    """
    trees = parents(ranks) if kind == "all_reduce" else rooted(ranks)
    low = max(depths(trees[0]) + depths(trees[1]))
    passes = 2 if kind == "all_reduce" else 1  # up and down
    rounds = pieces + passes * low - 1
    busiest = sum(_busiest(kind, trees, low, pieces, when) for when in range(rounds))
    total = between_nodes("all_reduce", ranks) if passes == 2 else 1.0
    return ClosedForm(rounds=rounds, bytes=total, fill=busiest / (2 * pieces) - total)


def _busiest(
    kind: CollectiveKind, trees: Sequence[Parents], low: int, pieces: int, when: int
) -> int:
    """The most pieces that any rank sends, or receives, in round `when`."""
    out, into = [0] * len(trees[0]), [0] * len(trees[0])
    for tree in trees:
        for rank, depth in enumerate(depths(tree)):
            up = kind != "broadcast" and low - depth <= when < low - depth + pieces
            start = depth - 1 + (low if kind == "all_reduce" else 0)
            down = kind != "reduce" and start <= when < start + pieces
            if depth and up:
                out[rank] += 1
                into[tree[rank]] += 1
            if depth and down:
                out[tree[rank]] += 1
                into[rank] += 1
    return max(out + into)


def between_nodes(kind: CollectiveKind, nodes: int) -> float:
    """Bytes out of the busiest node for each byte of S, when the trees join whole nodes.

    A node is an inner node (with at most two children) of one tree and a leaf of the other; each
    tree moves S/2. In an all-reduce, a node sends up in both trees and down to its children: 2 S.
    With fewer than four nodes, no inner node has two children.

    >>> [between_nodes("all_reduce", nodes) for nodes in (1, 2, 3, 4, 64)]
    [0.0, 1.0, 1.5, 2.0, 2.0]
    """
    if kind == "all_reduce":
        return min(nodes, 4) / 2 if nodes > 1 else 0.0
    return 1.0 if nodes > 1 else 0.0


def loads(kind: CollectiveKind, shape: GroupShape) -> LevelLoads:
    """Port and NIC bytes of chains inside the nodes, double binary trees between them.

    A chain's g - 1 hops carry S up and S down (all-reduce). Channels start at different members and
    spread these bytes over the g members of a node: S 2(g-1)/g each way.
    """
    hop = 2.0 if kind == "all_reduce" else 1.0
    inside = hop * (shape.per_node - 1) / shape.per_node
    return LevelLoads(port=inside, nic=between_nodes(kind, shape.nodes))


def steps(kind: CollectiveKind, shape: GroupShape) -> LevelSteps:
    """Hops of a piece, up and down: along the chain inside a node, over the tree between nodes."""
    passes = 2 if kind == "all_reduce" else 1
    return LevelSteps(intra=passes * (shape.per_node - 1), inter=passes * height(shape.nodes))
