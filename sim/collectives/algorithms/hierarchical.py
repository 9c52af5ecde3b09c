"""Hierarchical: rings inside the nodes, and rings between members of equal place in their nodes.

This is the two-level scheme of BlueConnect (Cho et al. 2019) and, for all-to-all, of NVIDIA's PXN
(NCCL 2.12). Data for the network are cut into a part for each member of a node; all parts move at
once. Rank r is slot r mod g of node r // g; N nodes have g members each. T, S, B, n: see `direct`.
"""

from sim.collectives.algorithms import direct, ring
from sim.collectives.composed import placed, together
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


def node_size(ranks: int, largest: int = 8) -> int:
    """The default size of a node: the largest divisor of the ranks up to `largest`.

    >>> [node_size(n) for n in (4, 7, 12, 16, 22)]
    [4, 7, 6, 8, 2]
    """
    return max(size for size in range(1, min(ranks, largest) + 1) if ranks % size == 0)


def all_reduce(ranks: int, per_node: int = 0) -> CollectiveSchedule:
    """Reduce-scatter in the nodes, all-reduce between them, all-gather in the nodes.

    T = 2(g-1 + N-1) alpha + 2(n-1)/n S/B; a member sends 2(N-1)/N S/g to other nodes.
    """
    g, nodes = _levels(ranks, per_node)
    shares = [range(slot * nodes, (slot + 1) * nodes) for slot in range(g)]
    inside = [range(a * g, a * g + g) for a in range(nodes)]
    rails = [(range(j, ranks, g), [[chunk] for chunk in shares[j]]) for j in range(g)]
    rounds = [
        *together(placed(ring.reduce_scatter(g), node, shares) for node in inside),
        *together(placed(ring.all_reduce(nodes), rail, share) for rail, share in rails),
        *together(placed(ring.all_gather(g), node, shares) for node in inside),
    ]
    return schedule("all_reduce", ranks, ranks, rounds)


def all_gather(ranks: int, per_node: int = 0) -> CollectiveSchedule:
    """Each slot gathers from the same slot of other nodes; then the slots of a node exchange.

    T = (g-1 + N-1) alpha + (n-1)/n S/B.
    """
    return schedule("all_gather", ranks, ranks, _gathering(ranks, per_node))


def reduce_scatter(ranks: int, per_node: int = 0) -> CollectiveSchedule:
    """The all-gather backwards, with sums on the way; it takes the same time."""
    backwards = (
        [ChunkSend(send.dst, send.src, send.chunk, True) for send in round_]
        for round_ in reversed(_gathering(ranks, per_node))
    )
    return schedule("reduce_scatter", ranks, ranks, backwards)


def _gathering(ranks: int, per_node: int) -> list[list[ChunkSend]]:
    g, nodes = _levels(ranks, per_node)
    columns = [range(j, ranks, g) for j in range(g)]
    return [
        *together(
            placed(ring.all_gather(nodes), column, [[rank] for rank in column])
            for column in columns
        ),
        *together(
            placed(ring.all_gather(g), range(a * g, a * g + g), columns) for a in range(nodes)
        ),
    ]


def broadcast(ranks: int, per_node: int = 0, pieces: int = 8) -> CollectiveSchedule:
    """A chain through the nodes' first members, then a chain in each node.

    T = (N-2+k) (alpha + S/(k B)) + (g-2+k) (alpha + S/(k B)) for k pieces.
    """
    rounds = _spreading(ranks, per_node, pieces)
    return schedule("broadcast", ranks, pieces, rounds)


def reduce(ranks: int, per_node: int = 0, pieces: int = 8) -> CollectiveSchedule:
    """The broadcast backwards, with sums on the way; it takes the same time."""
    backwards = (
        [ChunkSend(send.dst, send.src, send.chunk, True) for send in round_]
        for round_ in reversed(_spreading(ranks, per_node, pieces))
    )
    return schedule("reduce", ranks, pieces, backwards)


def _spreading(ranks: int, per_node: int, pieces: int) -> list[list[ChunkSend]]:
    g, nodes = _levels(ranks, per_node)
    each = [[piece] for piece in range(pieces)]
    across = placed(ring.broadcast(nodes, pieces), range(0, ranks, g), each) if nodes > 1 else []
    if g == 1:
        return across
    inside = (
        placed(ring.broadcast(g, pieces), range(a * g, a * g + g), each) for a in range(nodes)
    )
    return [*across, *together(inside)]


def all_to_all(ranks: int, per_node: int = 0) -> CollectiveSchedule:
    """Member j of each node collects its node's data for members j of all nodes; then members of
    equal j exchange them.

    T = (g-1 + N-1) alpha + ((g-1)/g + (N-1)/N) S/B.
    """
    g, nodes = _levels(ranks, per_node)
    inside = (
        placed(direct.all_to_all(g), range(a * g, a * g + g), _to_slots(a, g, ranks))
        for a in range(nodes)
    )
    across = (
        placed(direct.all_to_all(nodes), range(j, ranks, g), _to_nodes(j, g, ranks))
        for j in range(g)
    )
    return schedule("all_to_all", ranks, ranks, [*together(inside), *together(across)])


def _to_slots(node: int, g: int, ranks: int) -> list[list[int]]:
    """The entry i g + j has the chunks from member i of a node to slot j of all nodes."""
    return [
        [(node * g + i) * ranks + dst for dst in range(j, ranks, g)]
        for i in range(g)
        for j in range(g)
    ]


def _to_nodes(slot: int, g: int, ranks: int) -> list[list[int]]:
    """The entry a N + b has the chunks from all members of node a to a slot of node b."""
    nodes = ranks // g
    return [
        [(a * g + i) * ranks + b * g + slot for i in range(g)]
        for a in range(nodes)
        for b in range(nodes)
    ]


def _levels(ranks: int, per_node: int) -> tuple[int, int]:
    g = per_node or node_size(ranks)
    if ranks % g:
        raise ValueError(f"{ranks} ranks do not fill nodes of {g}")
    return g, ranks // g


def cost(kind: CollectiveKind, ranks: int, per_node: int = 0, pieces: int = 8) -> ClosedForm:
    """Rounds and bytes in closed form, on a uniform network."""
    g, nodes = _levels(ranks, per_node)
    if kind in ("broadcast", "reduce"):
        chains = [n for n in (g, nodes) if n > 1]
        rounds = sum(n - 2 + pieces for n in chains)
        sent = float(len(chains))
        return ClosedForm(rounds=rounds, bytes=sent, fill=rounds / pieces - sent)
    if kind == "all_to_all":
        return ClosedForm(rounds=g - 1 + nodes - 1, bytes=(g - 1) / g + (nodes - 1) / nodes)
    turns = 2 if kind == "all_reduce" else 1
    return ClosedForm(rounds=turns * (g - 1 + nodes - 1), bytes=turns * (ranks - 1) / ranks)


def loads(kind: CollectiveKind, shape: GroupShape) -> LevelLoads:
    """Loads of both levels: g members in a node, and N nodes, which g rails join.

    All-reduce: 2(g-1)/g S through a port, 2(N-1)/N S out of a node, of which a rail carries 1/g.
    """
    g, nodes = shape.evenly("hierarchical"), shape.nodes
    part = direct if kind == "all_to_all" else ring
    rails = g if kind == "all_to_all" else 1  # in all-to-all each rail carries a whole buffer
    port = part.loads(kind, GroupShape(ranks=g)).port if g > 1 else 0.0
    nic = part.loads(kind, GroupShape(ranks=nodes, nodes=nodes)).nic if nodes > 1 else 0.0
    return LevelLoads(port=port, nic=rails * nic)


def steps(kind: CollectiveKind, shape: GroupShape) -> LevelSteps:
    """Steps of rings in a node and between nodes: t (g-1) and t (N-1), with t = 2 for all-reduce
    and else 1. All-to-all has those of `direct`."""
    part = direct if kind == "all_to_all" else ring
    inside = part.steps(kind, GroupShape(ranks=shape.evenly("hierarchical")))
    across = part.steps(kind, GroupShape(ranks=shape.nodes, nodes=shape.nodes))
    return LevelSteps(intra=inside.intra, inter=across.inter)
