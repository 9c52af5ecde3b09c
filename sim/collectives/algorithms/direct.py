"""Direct: every rank sends to every other rank; best where messages are small or the network joins
all pairs at full rate (Thakur, Rabenseifner and Gropp 2005, section 3). T is the time (s) for S
bytes among n ranks with ports of bandwidth B (B/s), and alpha the latency of a round (s).
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

AT_ONCE = 8  # peers that NCCL serves concurrently in one kernel (enqueue.cc, p2p channels)


def all_gather(ranks: int) -> CollectiveSchedule:
    """Each rank sends its part to all others at once: T = alpha + (n-1)/n S/B."""
    return schedule("all_gather", ranks, ranks, [_pairs(ranks, reduce=False)])


def reduce_scatter(ranks: int) -> CollectiveSchedule:
    """Each rank sends each part to the rank that reduces it: T = alpha + (n-1)/n S/B."""
    rounds = [_pairs(ranks, reduce=True)]
    return schedule("reduce_scatter", ranks, ranks, rounds)


def all_reduce(ranks: int) -> CollectiveSchedule:
    """Reduce-scatter, then all-gather ("two-shot"): T = 2 alpha + 2(n-1)/n S/B."""
    rounds = reduce_scatter(ranks).rounds + all_gather(ranks).rounds
    return schedule("all_reduce", ranks, ranks, rounds)


def broadcast(ranks: int) -> CollectiveSchedule:
    """The root sends its whole buffer to every rank: T = alpha + (n-1) S/B."""
    return schedule("broadcast", ranks, 1, [(ChunkSend(0, dst, 0) for dst in range(1, ranks))])


def reduce(ranks: int) -> CollectiveSchedule:
    """Every rank sends its whole buffer to the root: T = alpha + (n-1) S/B."""
    return schedule("reduce", ranks, 1, [(ChunkSend(src, 0, 0, True) for src in range(1, ranks))])


def all_to_all(ranks: int) -> CollectiveSchedule:
    """Pairwise exchange: in round t rank i sends to rank i + t. T = (n-1) (alpha + S/(n B))."""
    return schedule("all_to_all", ranks, ranks, _exchange(ranks))


def point_to_point(ranks: int = 2) -> CollectiveSchedule:
    """A message from rank 0 to rank 1: T = alpha + S/B."""
    return schedule("point_to_point", ranks, 1, [[ChunkSend(0, 1, 0)]])


def gather(ranks: int) -> CollectiveSchedule:
    """Each rank sends its part to the root: T = alpha + (n-1)/n S/B."""
    return schedule("gather", ranks, ranks, [(ChunkSend(src, 0, src) for src in range(1, ranks))])


def scatter(ranks: int) -> CollectiveSchedule:
    """The root sends each rank its part: T = alpha + (n-1)/n S/B."""
    return schedule("scatter", ranks, ranks, [(ChunkSend(0, dst, dst) for dst in range(1, ranks))])


def sendrecv(ranks: int) -> CollectiveSchedule:
    """Each rank sends to the next rank and receives from the rank before: T = alpha + S/B."""
    around = (ChunkSend(rank, (rank + 1) % ranks, 0) for rank in range(ranks))
    return schedule("sendrecv", ranks, 1, [around])


def _pairs(ranks: int, *, reduce: bool) -> Iterator[ChunkSend]:
    """A send for each ordered pair: of the destination's part if `reduce`, else of the source's."""
    for src in range(ranks):
        for dst in range(ranks):
            if src != dst:
                yield ChunkSend(src, dst, dst if reduce else src, reduce)


def _exchange(ranks: int) -> Iterator[Iterator[ChunkSend]]:
    for t in range(1, ranks):
        yield (ChunkSend(i, (i + t) % ranks, i * ranks + (i + t) % ranks) for i in range(ranks))


def cost(kind: CollectiveKind, ranks: int) -> ClosedForm:
    """Rounds and bytes in closed form."""
    n = ranks
    if kind in ("point_to_point", "sendrecv"):
        return ClosedForm(rounds=1, bytes=1.0)
    if kind in ("broadcast", "reduce"):
        return ClosedForm(rounds=1, bytes=n - 1.0)
    if kind == "all_to_all":
        return ClosedForm(rounds=n - 1, bytes=(n - 1) / n)
    turns = 2 if kind == "all_reduce" else 1
    return ClosedForm(rounds=turns, bytes=turns * (n - 1) / n)


def loads(kind: CollectiveKind, shape: GroupShape) -> LevelLoads:
    """Port and NIC bytes for each byte of S, if each rank sends S/n to each other rank.

    With g members in a node, a member sends S (g-1)/n through its port, and the node sends
    g S (n-g)/n through its NICs; an all-reduce twice as much. A single message uses ports or NICs.
    In sendrecv, one member of each node sends to the next node; in gather and scatter, only a root.
    """
    n, g = shape.ranks, shape.per_node
    if kind == "point_to_point":
        return LevelLoads(port=0.0, nic=1.0) if shape.nodes > 1 else LevelLoads(port=1.0)
    if kind in ("broadcast", "reduce"):
        return LevelLoads(port=g - 1.0, nic=float(n - g))
    if kind in ("gather", "scatter"):
        return LevelLoads(port=(g - 1) / n, nic=(n - g) / n)
    if kind == "sendrecv":
        return LevelLoads(port=float(g > 1), nic=float(shape.nodes > 1))
    each = (2 if kind == "all_reduce" else 1) / n
    return LevelLoads(port=each * (g - 1), nic=each * g * (n - g))


def steps(kind: CollectiveKind, shape: GroupShape) -> LevelSteps:
    """Peers are served `AT_ONCE` at a time, peers in the node at the same time as peers outside."""
    turns = 2 if kind == "all_reduce" else 1
    if kind in ("point_to_point", "sendrecv"):
        return LevelSteps(intra=int(shape.nodes == 1), inter=int(shape.nodes > 1))
    outside = -(-(shape.ranks - shape.per_node) // AT_ONCE)
    inside = -(-(shape.per_node - 1) // AT_ONCE)
    return LevelSteps(intra=turns * inside if not outside else 0, inter=turns * outside)
