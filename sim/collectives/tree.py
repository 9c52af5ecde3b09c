"""Double binary tree: two trees, each for half of the data, whose inner nodes are disjoint.

Sanders, Speck and Traeff 2009, "Two-tree algorithms for full bandwidth broadcast, reduction and
scan"; in NCCL since 2.4 (Jeaugey 2019), there between nodes, with a chain inside each node.
"""

from functools import cache

from sim.collectives.schedule import Kind
from sim.collectives.shape import Loads, Shape, Steps

Parents = tuple[int, ...]


@cache
def parents(ranks: int) -> tuple[Parents, Parents]:
    """Each rank's parent in both trees; the root, rank 0 of the first, is its own.

    In the first tree a rank stands as high as the number of zeros its index ends in, so odd ranks
    are leaves. The second is the first shifted by one (mirrored when the ranks are even), which
    makes odd ranks inner and even ranks leaves.

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


def depths(tree: Parents) -> tuple[int, ...]:
    """Each rank's distance from the root.

    >>> depths(parents(8)[0])
    (0, 3, 2, 3, 1, 3, 2, 3)
    """
    known: dict[int, int] = {}

    def depth(rank: int) -> int:
        if rank not in known:
            known[rank] = 0 if tree[rank] == rank else 1 + depth(tree[rank])
        return known[rank]

    return tuple(depth(rank) for rank in range(len(tree)))


def height(ranks: int) -> int:
    """Levels below the root of the deeper tree: ceil(log2 n).

    >>> [height(n) for n in (1, 2, 3, 4, 5, 8)]
    [0, 1, 2, 2, 3, 3]
    """
    return max(ranks - 1, 0).bit_length()


def between_nodes(kind: Kind, nodes: int) -> float:
    """Bytes out of the busiest node for each byte of S, when the trees join whole nodes.

    A node is inner (at most two children) in one tree, a leaf in the other, each for S/2. In an
    all-reduce it sends up in both and down to its children: 2 S. In fewer than four nodes no
    inner node has two children.

    >>> [between_nodes("all_reduce", nodes) for nodes in (1, 2, 3, 4, 64)]
    [0.0, 1.0, 1.5, 2.0, 2.0]
    """
    if kind == "all_reduce":
        return min(nodes, 4) / 2 if nodes > 1 else 0.0
    return min(nodes // 2, 2) / 2


def loads(kind: Kind, shape: Shape) -> Loads:
    """Port and NIC bytes of chains inside the nodes, double binary trees between them.

    A chain's g - 1 hops carry S up and S down (all-reduce), spread over the node's g members by
    channels that start at different ones: S 2(g-1)/g each way.
    """
    hop = 2.0 if kind == "all_reduce" else 1.0
    return Loads(
        port=hop * (shape.per_node - 1) / shape.per_node, nic=between_nodes(kind, shape.nodes)
    )


def steps(kind: Kind, shape: Shape) -> Steps:
    """Up and down: the chain inside a node, the tree between them."""
    ways = 2 if kind == "all_reduce" else 1
    return Steps(intra=ways * (shape.per_node - 1), inter=ways * height(shape.nodes))
