"""The placement of a collective's members, and the loads of an algorithm on both levels."""

from sim.config.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupShape:
    """How a group is placed: `ranks` members on `nodes`, at most `per_node` of them on one node.
    A hop from node to node takes `beyond` (s) more than through one switch, on average.

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
        """The members of each node. Raises `ValueError` where an algorithm needs them equal."""
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

    `port` bytes pass a member's port each way and stay in the node; `nic` bytes leave (and enter) a
    node, for all members of the group together. The collective's bytes are as nccl-tests counts
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
