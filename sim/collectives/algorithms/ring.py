"""Ring: every rank communicates with its two neighbours only.

Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations";
NCCL also calls the pipelined chain for broadcast and reduce a ring. Symbols: see `direct`.
"""

from collections.abc import Iterator

import numpy as np

from sim.collectives.schedule import (
    ChunkSend,
    ClosedForm,
    CollectiveKind,
    CollectiveSchedule,
    GroupShape,
    LevelLoads,
    LevelSteps,
    Round,
    schedule,
)


def reduce_scatter(ranks: int) -> CollectiveSchedule:
    """Each of n chunks travels once around, summed on the way, and ends at its owner.

    n - 1 rounds of S/n bytes: T = (n-1) alpha + (n-1)/n S/B (Patarasuk and Yuan, section 4).

    >>> [(send.src, send.dst, send.chunk) for send in reduce_scatter(3).rounds[0]]
    [(0, 1, 2), (1, 2, 0), (2, 0, 1)]
    """
    return schedule("reduce_scatter", ranks, ranks, _around(ranks, first=-1, reduce=True))


def all_gather(ranks: int) -> CollectiveSchedule:
    """Each rank's chunk travels once around: T = (n-1) alpha + (n-1)/n S/B."""
    return schedule("all_gather", ranks, ranks, _around(ranks, first=0, reduce=False))


def all_reduce(ranks: int) -> CollectiveSchedule:
    """Reduce-scatter, then all-gather: T = 2(n-1) alpha + 2(n-1)/n S/B, optimal in bytes."""
    rounds = reduce_scatter(ranks).rounds + all_gather(ranks).rounds
    return schedule("all_reduce", ranks, ranks, rounds)


def broadcast(ranks: int, pieces: int = 8) -> CollectiveSchedule:
    """A pipelined chain from rank 0: piece p leaves rank i in round p + i.

    T = (n - 2 + k) (alpha + S/(k B)) for k pieces.
    """
    return schedule("broadcast", ranks, pieces, _along(ranks, pieces, up=False))


def reduce(ranks: int, pieces: int = 8) -> CollectiveSchedule:
    """The broadcast's chain backwards, with sums on the way; it takes the same time."""
    return schedule("reduce", ranks, pieces, _along(ranks, pieces, up=True))


def _around(ranks: int, *, first: int, reduce: bool) -> Iterator[Round]:
    """In round t rank i passes on chunk i + first - t."""
    chunks = np.arange(ranks)
    twice, following, adds = np.tile(chunks, 2), np.roll(chunks, -1), np.full(ranks, reduce)
    for t in range(ranks - 1):
        start = (first - t) % ranks
        yield Round(chunks, following, twice[start : start + ranks], adds)


def _along(ranks: int, pieces: int, *, up: bool) -> Iterator[list[ChunkSend]]:
    for t in range(ranks - 2 + pieces):
        hops = [(i, t - i) for i in range(ranks - 1) if 0 <= t - i < pieces]
        if up:  # the chain ends at rank 0
            yield [ChunkSend(ranks - 1 - i, ranks - 2 - i, piece, True) for i, piece in hops]
        else:
            yield [ChunkSend(i, i + 1, piece) for i, piece in hops]


def cost(kind: CollectiveKind, ranks: int, pieces: int = 8) -> ClosedForm:
    """Rounds, bytes and fill in closed form."""
    n = ranks
    if kind in ("all_gather", "reduce_scatter"):
        return ClosedForm(rounds=n - 1, bytes=(n - 1) / n)
    if kind == "all_reduce":
        return ClosedForm(rounds=2 * (n - 1), bytes=2 * (n - 1) / n)
    return ClosedForm(rounds=n - 2 + pieces, bytes=1.0, fill=(n - 2) / pieces)


def loads(kind: CollectiveKind, shape: GroupShape) -> LevelLoads:
    """Port and NIC bytes of rings that enter each node once, in rank order.

    Each hop carries h = 2(n-1)/n (all-reduce), (n-1)/n (all-gather, reduce-scatter) or 1 (chains)
    bytes. A node's g members have g - 1 hops inside and one hop out. NCCL runs many rings that
    leave the node at different members (its channels), so each member carries h (g-1)/g inside
    and each NIC h/g. In one node all g = n hops are inside.
    """
    hop = 1.0 if kind in ("broadcast", "reduce") else cost(kind, shape.ranks).bytes
    if shape.nodes == 1:
        return LevelLoads(port=hop)
    return LevelLoads(port=hop * (shape.per_node - 1) / shape.per_node, nic=hop)


def steps(kind: CollectiveKind, shape: GroupShape) -> LevelSteps:
    """Hops of one chunk, once or twice around. In a turn of n hops, N hops are between the N
    nodes."""
    turns = 2 if kind == "all_reduce" else 1
    total = turns * (shape.ranks - 1)
    between = min(turns * shape.nodes - (turns == 1), total) if shape.nodes > 1 else 0
    return LevelSteps(intra=total - between, inter=between)
