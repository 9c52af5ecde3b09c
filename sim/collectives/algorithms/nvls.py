"""NVLink SHARP: the NVSwitch adds and multicasts (Hopper and later; NCCL calls it NVLS).

A switch is not a rank, so there are no rounds of sends here, only closed forms of loads and steps.
Across nodes (NVLSTree) each member reduces its share in the switch, sends it up and down a
double binary tree between nodes, and multicasts the result.
"""

from sim.collectives.algorithms import tree
from sim.collectives.schedule import CollectiveKind, GroupShape, LevelLoads, LevelSteps

# The collectives that the switch offers.
SWITCHED: tuple[CollectiveKind, ...] = ("all_reduce", "all_gather", "reduce_scatter")


def loads(kind: CollectiveKind, shape: GroupShape) -> LevelLoads:
    """Port and NIC bytes for each byte of the collective's S bytes, with g members in a node.

    All-reduce: every member sends S bytes to be added and S/g bytes of sums to be multicast, and
    receives as many: S (1 + 1/g) each way. All-gather: a member receives all S bytes from the
    switch. Reduce-scatter: a member gives all S bytes to the switch.
    """
    share = 1.0 / shape.per_node
    nic = tree.between_nodes(kind, shape.nodes)
    return LevelLoads(port=1.0 + share if kind == "all_reduce" else 1.0, nic=nic)


def steps(kind: CollectiveKind, shape: GroupShape) -> LevelSteps:
    """All-reduce: a step into the switch and one out of it, else one; the tree up and down."""
    return LevelSteps(intra=2 if kind == "all_reduce" else 1, inter=2 * tree.height(shape.nodes))
