"""Questions to a collective library: a call, and the hardware as the library finds it.

A topology may name the algorithms among which a call takes the fastest.
"""

from collections.abc import Iterable
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING

from sim.collectives.schedule import (
    CollectiveKind,
    GroupShape,
    LevelLoads,
    LevelSteps,
    kind_named,
    offered,
)
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.plugins import modules
from sim.program.operations import AUTO, AlgorithmRule

if TYPE_CHECKING:
    from sim.program.routed import Routed


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCost:
    """The cost of one call: a delay, then bytes through ports and NICs.

    `latency` (s) includes software, dependent steps and pipeline fill. `port` bytes pass each
    member's port each way; `nic` bytes leave (and enter) each node, shared evenly by the NICs of
    its members. Both are at line rate, with the protocol's overhead. `sent_port` and `sent_nic` are
    the collective's own bytes, on average. On an idle network the call takes latency + max(port /
    its capacity, nic / its bandwidth). A kernel holds `ctas` SMs and moves `memory` bytes of HBM.
    """

    latency: float
    port: float = 0.0
    nic: float = 0.0
    sent_port: float = 0.0
    sent_nic: float = 0.0
    algorithm: str = ""
    protocol: str = ""
    ctas: int = 0
    memory: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Interconnect:
    """The hardware as a collective library detects it.

    Bandwidths are line rates each way: `port_bandwidth` of one GPU's NVLink (or PCIe) port,
    `nic_bandwidth` of one NIC; a library's constants say which fractions it reaches.
    `mesh[i][j]` counts the NVLink cables between GPUs i and j of a node without switch, each of
    `cable_bandwidth`; it is empty when a switch joins the ports. `torus` is the grid of a node's
    chips, with `cores` devices on each chip: for each dimension, how many chips there are, and how
    many cables a chip has. `latency` and `port_latency` (s) are the one-way times through the
    network and from port to port; None stands for the latency at which the library's constants were
    measured. `efficiency` is the share of payload in the bytes on the network's wires.
    """

    generation: str
    gpus_per_node: int
    port_bandwidth: float
    nics_per_node: int = 0
    nic_bandwidth: float = 0.0
    network: str = "none"
    nvls: bool = False
    mesh: tuple[tuple[int, ...], ...] = ()
    torus: tuple[tuple[int, int], ...] = ()
    cores: int = 1
    cable_bandwidth: float = 0.0
    latency: float | None = None
    port_latency: float | None = None
    efficiency: float = 1.0

    def nic_share(self, per_node: int) -> float:
        """Network bandwidth (B/s) of a node for a group with `per_node` members in it.

        A member reaches the network through its own NIC; fewer NICs than GPUs are shared.

        >>> p4d = Interconnect(generation="ampere", gpus_per_node=8, port_bandwidth=300e9,
        ...                    nics_per_node=4, nic_bandwidth=12.5e9, network="efa")
        >>> [p4d.nic_share(members) / 12.5e9 for members in (1, 2, 8)]
        [1.0, 1.0, 4.0]
        """
        nics = -(-self.nics_per_node * min(per_node, self.gpus_per_node) // self.gpus_per_node)
        return nics * self.nic_bandwidth


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """A collective of `size` bytes (as nccl-tests counts them) among the members of a group.

    An all-to-all may send `routed` items; `size` then counts one copy of each item. The library
    takes the quickest of `algorithms`; () means the algorithms that it considers by itself. A
    message between two ranks may use a communicator of more ranks: `among`.
    """

    kind: CollectiveKind
    size: float
    shape: GroupShape
    interconnect: Interconnect
    routed: "Routed | None" = None
    algorithms: tuple[str, ...] = ()
    among: int = 2

    def duration(self, cost: CallCost) -> float:
        """Seconds that the call takes at a `cost`, when nothing else uses the network."""
        port = cost.port / self.interconnect.port_bandwidth
        share = self.interconnect.nic_share(self.shape.per_node)
        return cost.latency + max(port, cost.nic / share if cost.nic else 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkState:
    """The `share` of the library's rate that the network carries."""

    share: float = 1.0

    def cost(self, cost: CallCost) -> CallCost:
        """The cost of a call in this state: bytes through the network are divided by `share`."""
        return cost if self == HEALTHY else replace(cost, nic=cost.nic / self.share)


HEALTHY = NetworkState()


_FOLDER = "sim.collectives.algorithms"


def selectable() -> dict[str, ModuleType]:
    """The algorithms that state their loads on both levels of a cluster, by name."""
    return {name: module for name, module in modules(_FOLDER).items() if hasattr(module, "steps")}


def _named(name: str) -> ModuleType | None:
    algorithm = modules(_FOLDER).get(name)
    return algorithm if hasattr(algorithm, "steps") else None


def check(rules: Iterable[AlgorithmRule], where: str) -> None:
    """Raise `InputError` for unknown names, and for kinds that an algorithm does not offer."""
    for rule in rules:
        kinds = [kind_named(kind, where) for kind in rule.kinds]
        for name in rule.use:
            if name == AUTO:
                continue
            if (algorithm := _named(name)) is None:
                fault = f"no algorithm named {name!r}"
                raise InputError.unknown(where, fault, name, [*selectable(), AUTO])
            for kind in kinds:
                if kind not in offered(algorithm):
                    can = ", ".join(offered(algorithm))
                    raise InputError(where, f"{name} has no {kind}", f"it has {can}")


def chosen(rules: Iterable[AlgorithmRule], kind: CollectiveKind, size: float) -> tuple[str, ...]:
    """The algorithms from which a call takes the fastest; () leaves the choice to the library.

    >>> trees = [AlgorithmRule(use=("tree",), up_to=1e6)]
    >>> [chosen(trees, "all_reduce", size) for size in (1e6, 2e6)], chosen(trees, "all_gather", 1.0)
    ([('tree',), ()], ())
    """
    for rule in rules:
        if size <= rule.up_to and (not rule.kinds or kind in map(_kind, rule.kinds)):
            return tuple(
                name for name in rule.use if name == AUTO or kind in offered(modules(_FOLDER)[name])
            )
    return ()


def _kind(name: str) -> CollectiveKind:
    return kind_named(name, "algorithm")


def on_levels(name: str, kind: CollectiveKind, shape: GroupShape) -> tuple[LevelLoads, LevelSteps]:
    """Loads and steps of an algorithm on both levels. Raises `InputError` for unsuitable groups."""
    algorithm = modules(_FOLDER)[name]
    try:
        return algorithm.loads(kind, shape), algorithm.steps(kind, shape)
    except ValueError as error:
        raise InputError.of(_where(name, shape), error) from None


def refused(call: CollectiveCall, name: str, why: str) -> InputError:
    """The error for a call that cannot use the algorithm that the user named."""
    remedy = f"choose another algorithm for {call.kind}, or {AUTO!r}"
    return InputError(_where(name, call.shape), why, remedy)


def _where(name: str, shape: GroupShape) -> str:
    """The setting that names the algorithm for groups of this shape, as errors print it."""
    return f"{'network' if shape.nodes > 1 else 'node'}.algorithm {name!r}"
