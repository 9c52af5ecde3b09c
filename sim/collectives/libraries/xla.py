"""XLA's collectives on TPUs: over all dimensions of a torus at once, and between slices.

In a torus of d dimensions a buffer is cut into d parts. Each part goes around the dimensions in a
different order, in both directions, so all cables are equally busy (the multi-dimensional bucket
algorithm, Jain and Sabharwal 2010, "Optimal bucket algorithms for large MPI collectives on torus
interconnects"; Austin et al., How to Scale Your Model, "TPU networking"). Between slices, hosts
exchange the shares that their chips hold after the reduction in a slice.
"""

from math import prod

from sim.collectives.interconnect import CallCost, CollectiveCall, Interconnect, refused
from sim.collectives.schedule import CollectiveKind, GroupShape
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.units import Seconds
from sim.program.operations import AUTO

_SINGLE = ("point_to_point", "sendrecv")  # a rank sends one message
Torus = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Xla:
    """The backend: the content of topologies/backends/xla.toml.

    `launch` is the time of an operation that moves nothing, `hop` a step to the next chip,
    `slice_hop` a step to another slice. `fraction` and `slice_fraction` are the shares of the line
    rates that bulk traffic reaches.
    """

    launch: Seconds
    hop: Seconds
    fraction: float
    slice_hop: Seconds
    slice_fraction: float

    def call_cost(self, call: CollectiveCall) -> CallCost:
        """The cost of one call of S bytes, with g members in each of N slices.

        port = t (g-1)/g S, nic = t (N-1)/N S, in t (N-1 + the sum of k-1 over the dimensions' sizes
        k) steps; t is 2 for an all-reduce, else 1. Items of an all-to-all
        make k/4 steps in each dimension on average.
        """
        kind, shape, interconnect = call.kind, call.shape, call.interconnect
        if shape.ranks == 1:
            return CallCost(latency=0.0, algorithm="none", protocol="none")
        if call.algorithms not in ((), (AUTO,)):
            raise refused(call, call.algorithms[0], "XLA takes its own way through a torus")
        if shape.per_node > 1 and not interconnect.torus:
            fault = "the xla backend needs chips in a torus, which this cluster lacks"
            raise InputError("topology, backend", fault, 'set backend = "nccl"')
        dims = spanned(interconnect.torus, -(-shape.per_node // interconnect.cores))
        turns = 2 if kind == "all_reduce" else 1
        inside = sum(size - 1 for size, _ in dims) if kind not in _SINGLE else 1
        port, nic = (
            call.size * self._port(kind, shape, dims),
            call.size * self._nic(kind, shape),
        )
        return CallCost(
            latency=self.launch + turns * (inside * self.hop + (shape.nodes - 1) * self.slice_hop),
            port=port / self._share(dims, interconnect),
            nic=nic / self.slice_fraction,
            sent_port=port,
            sent_nic=nic,
            algorithm="torus" if shape.nodes == 1 else "slices",
            protocol="xla",
        )

    def _port(self, kind: CollectiveKind, shape: GroupShape, dims: Torus) -> float:
        members = shape.per_node
        if kind in _SINGLE:
            return float(members > 1)
        if kind == "all_to_all":
            return max((members - 1) / members, sum(size / 4 for size, _ in dims)) / shape.nodes
        turns = 2 if kind == "all_reduce" else 1
        return turns * (members - 1) / members

    def _nic(self, kind: CollectiveKind, shape: GroupShape) -> float:
        across = (shape.nodes - 1) / shape.nodes
        if kind in _SINGLE:
            return float(shape.nodes > 1)
        if kind == "all_to_all":
            return shape.per_node * across
        return (2 if kind == "all_reduce" else 1) * across

    def _share(self, dims: Torus, interconnect: Interconnect) -> float:
        """The share of a port's line rate that a group reaches if it fills dimensions `dims`."""
        whole = sum(cables for _, cables in interconnect.torus)
        return self.fraction * (sum(cables for _, cables in dims) or whole) / max(whole, 1)


def spanned(grid: Torus, chips: int) -> Torus:
    """The part of a grid that `chips` neighbouring chips fill, dimension by dimension.

    >>> spanned(((16, 2), (16, 2)), 64), spanned(((4, 2), (4, 2), (8, 2)), 4)
    (((16, 2), (4, 2)), ((4, 2),))
    """
    part: Torus = ()
    for size, cables in grid:
        filled = prod(k for k, _ in part)
        if filled < chips:
            part = (*part, (min(size, -(-chips // filled)), cables))
    return part
