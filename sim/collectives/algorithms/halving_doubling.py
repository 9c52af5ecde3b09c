"""Recursive halving and doubling: ranks send to ranks 1, 2, 4, ... away, not to a neighbour only.

Powers of two follow Thakur, Rabenseifner and Gropp 2005, "Optimization of collective communication
operations in MPICH". Other numbers of ranks take the circulant pattern of Bruck et al.
1997, run backwards for the reduction (Traeff 2023, "Optimal, non-pipelined reduce-scatter and
allreduce algorithms"). Both need ceil(log2 n) rounds and (n-1)/n S bytes. Symbols: see `direct`.
"""

from collections.abc import Iterator

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


def all_gather(ranks: int) -> CollectiveSchedule:
    """Doubling: after round k a rank holds 2^(k+1) parts.

    T = ceil(log2 n) alpha + (n-1)/n S/B.

    >>> [[(send.src, send.dst, send.chunk) for send in round_] for round_ in all_gather(2).rounds]
    [[(0, 1, 0), (1, 0, 1)]]
    """
    return schedule("all_gather", ranks, ranks, _doubling(ranks))


def reduce_scatter(ranks: int) -> CollectiveSchedule:
    """Halving: the all-gather backwards, where each receiver adds. It takes the same time."""
    return schedule("reduce_scatter", ranks, ranks, _backwards(all_gather(ranks)))


def all_reduce(ranks: int) -> CollectiveSchedule:
    """Halving, then doubling: T = 2 ceil(log2 n) alpha + 2(n-1)/n S/B (Rabenseifner)."""
    rounds = reduce_scatter(ranks).rounds + all_gather(ranks).rounds
    return schedule("all_reduce", ranks, ranks, rounds)


def broadcast(ranks: int) -> CollectiveSchedule:
    """Binomial tree: every rank that has the data sends them on. T = ceil(log2 n) (alpha + S/B)."""
    return schedule("broadcast", ranks, 1, _binomial(ranks))


def reduce(ranks: int) -> CollectiveSchedule:
    """The binomial tree backwards, which takes the same time."""
    return schedule("reduce", ranks, 1, _backwards(broadcast(ranks)))


def all_to_all(ranks: int) -> CollectiveSchedule:
    """Bruck: in round k, all chunks with bit k in their distance move on by 2^k ranks.

    A chunk from rank s to rank d has the distance (d - s) mod n and moves by the powers of two in
    it: T = ceil(log2 n) alpha + (bits set in all distances) S/(n B), about log2(n)/2 S/B.
    """
    return schedule("all_to_all", ranks, ranks, _bruck(ranks))


def distances(ranks: int) -> list[int]:
    """The powers of two below `ranks`, rising.

    >>> distances(6)
    [1, 2, 4]
    """
    return [1 << k for k in range(max(ranks - 1, 0).bit_length())]


def _doubling(ranks: int) -> Iterator[Iterator[ChunkSend]]:
    power_of_two = ranks & (ranks - 1) == 0
    for step in distances(ranks):
        if power_of_two:  # pairs exchange all that they hold, an aligned block of `step`
            yield (
                ChunkSend(i, i ^ step, chunk)
                for i in range(ranks)
                for chunk in range(i // step * step, i // step * step + step)
            )
        else:  # rank i sends the chunks that it holds, i to i + step - 1, if they are missing
            yield (
                ChunkSend(i, (i - step) % ranks, (i + k) % ranks)
                for i in range(ranks)
                for k in range(min(step, ranks - step))
            )


def _binomial(ranks: int) -> Iterator[Iterator[ChunkSend]]:
    for step in distances(ranks):
        yield (ChunkSend(i, i + step, 0) for i in range(min(step, ranks - step)))


def _bruck(ranks: int) -> Iterator[Iterator[ChunkSend]]:
    for step in distances(ranks):
        yield (
            _hop(source, distance, step, ranks)
            for source in range(ranks)
            for distance in range(ranks)
            if distance & step
        )


def _hop(source: int, distance: int, step: int, ranks: int) -> ChunkSend:
    """A chunk's hop over `step` ranks, after its hops over fewer; the chunk is from `source`."""
    here = source + distance % step
    chunk = source * ranks + (source + distance) % ranks
    return ChunkSend(here % ranks, (here + step) % ranks, chunk)


def _backwards(forwards: CollectiveSchedule) -> Iterator[Iterator[ChunkSend]]:
    """The rounds in reverse order, each send reversed and added up at its new destination."""
    for round_ in reversed(forwards.rounds):
        yield (ChunkSend(s.dst, s.src, s.chunk, True) for s in round_)


def cost(kind: CollectiveKind, ranks: int) -> ClosedForm:
    """Rounds and bytes in closed form."""
    n, rounds = ranks, len(distances(ranks))
    if kind in ("broadcast", "reduce"):
        return ClosedForm(rounds=rounds, bytes=float(rounds))  # the root sends in every round
    if kind == "all_to_all":
        return ClosedForm(
            rounds=rounds, bytes=sum(distance.bit_count() for distance in range(n)) / n
        )
    turns = 2 if kind == "all_reduce" else 1
    return ClosedForm(rounds=turns * rounds, bytes=turns * (n - 1) / n)


def loads(kind: CollectiveKind, shape: GroupShape) -> LevelLoads:
    """Bytes of the first node's members, added up round by round; no other node has more.

    An all-gather of n = 2^k ranks with g members in a node: (g-1)/n S through a port, but
    g (n-g)/n S out of a node, because every member sends to a rank of another node.
    """
    n, g = shape.ranks, shape.evenly("halving_doubling")
    ports, nic = [0.0] * g, 0.0
    for way, step, moved in _sent(kind, n):
        for member in range(g):
            if kind in ("broadcast", "reduce") and not member < step < n - member:
                continue
            pairs = n & (n - 1) == 0 and kind != "all_to_all"
            peer = member ^ step if pairs else (member + way * step) % n
            if peer < g:
                ports[member] += moved
            else:
                nic += moved
    return LevelLoads(port=max(ports), nic=nic)


def _sent(kind: CollectiveKind, ranks: int) -> Iterator[tuple[int, int, float]]:
    """For each round: the direction, the distance, and the part of the buffer that a rank sends."""
    ways = {"all_gather": (-1,), "all_reduce": (1, -1)}.get(kind, (1,))
    for step in distances(ranks):
        moved = min(step, ranks - step) / ranks
        if kind == "all_to_all":
            moved = sum(distance & step > 0 for distance in range(ranks)) / ranks
        elif kind in ("broadcast", "reduce"):
            moved = 1.0
        yield from ((way, step, moved) for way in ways)


def steps(kind: CollectiveKind, shape: GroupShape) -> LevelSteps:
    """t ceil(log2 n) rounds, with t = 2 for all-reduce, else 1. The floor(log2 g) shortest
    distances stay in a node of g; one fewer if ranks send around in one direction."""
    n, turns = shape.ranks, 2 if kind == "all_reduce" else 1
    rounds = len(distances(n))
    near = rounds if shape.nodes == 1 else shape.evenly("halving_doubling").bit_length() - 1
    around = kind == "all_to_all" or n & (n - 1)
    if shape.nodes > 1 and around and kind not in ("broadcast", "reduce"):
        near = max(near - 1, 0)
    return LevelSteps(intra=turns * near, inter=turns * (rounds - near))
