"""Double binary tree: two trees, each for half of the data, whose inner ranks are disjoint.

Sanders, Speck and Traeff 2009, "Two-tree algorithms for full bandwidth broadcast, reduction and
scan". NCCL has such trees between nodes since 2.4 (Jeaugey 2019). T, S, B, alpha: see `direct`.
"""

from sim.collectives.schedule import (
    ClosedForm,
    CollectiveKind,
    CollectiveSchedule,
    GroupShape,
    LevelLoads,
    LevelSteps,
    schedule,
)


def height(ranks: int) -> int:
    """Levels below the root of either tree: ceil(log2 n).

    >>> [height(n) for n in (1, 2, 3, 4, 5, 8)]
    [0, 1, 2, 2, 3, 3]
    """
    return max(ranks - 1, 0).bit_length()


def all_reduce(ranks: int, pieces: int = 4, per_node: int = 1) -> CollectiveSchedule:
    """Sums go up both trees and results down. Each half of the data has k `pieces`, sent in turn.

    A rank that is l levels above the leaves passes a piece on l rounds after the leaves. A result
    takes as many rounds down from the root. T = (k + 2h - 1) alpha + (bytes + fill) S/B, see
    `cost`; h is the trees' height.
    """
    from sim.collectives.binary_trees import chained, in_both, up_and_down

    trees = chained(ranks // per_node, per_node)
    rounds = in_both(trees, pieces, lambda tree, half: up_and_down(tree, half, pieces))
    return schedule("all_reduce", ranks, 2 * pieces, rounds)


def broadcast(ranks: int, pieces: int = 4) -> CollectiveSchedule:
    """Rank 0 feeds two trees of height h over other ranks: T = (k + h) alpha + (1 + fill) S/B."""
    from sim.collectives.binary_trees import down, in_both, rooted

    rounds = in_both(rooted(ranks), pieces, lambda tree, half: down(tree, half, pieces))
    return schedule("broadcast", ranks, 2 * pieces, rounds)


def reduce(ranks: int, pieces: int = 4) -> CollectiveSchedule:
    """The broadcast backwards, with sums on the way; it takes the same time."""
    from sim.collectives.binary_trees import in_both, rooted, up

    rounds = in_both(rooted(ranks), pieces, lambda tree, half: up(tree, half, pieces))
    return schedule("reduce", ranks, 2 * pieces, rounds)


def cost(kind: CollectiveKind, ranks: int, pieces: int = 4) -> ClosedForm:
    """Rounds and bytes in closed form; the fill is summed over the trees' levels.

    A piece has S/(2k) bytes. `bytes` are the busiest port's in steady state: `between_nodes`, or
    two pieces a round in broadcasts and reduces. A tree fills and drains level by level.
    """
    from sim.collectives.binary_trees import busiest, depths, parents, rooted

    trees = parents(ranks) if kind == "all_reduce" else rooted(ranks)
    low = max(depths(trees[0]) + depths(trees[1]))
    passes = 2 if kind == "all_reduce" else 1  # up and down
    rounds = pieces + passes * low - 1
    most = sum(busiest(kind, trees, low, pieces, when) for when in range(rounds))
    total = between_nodes("all_reduce", ranks) if passes == 2 else 1.0
    return ClosedForm(rounds=rounds, bytes=total, fill=most / (2 * pieces) - total)


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
