"""The machine that a program runs on: a topology, a backend, and what is wrong with some ranks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sim.collectives.shape import Shape, Wire
from sim.hardware.topology import Topology

WireOf = Callable[[str, float, Shape], Wire]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """`wire(kind, bytes, shape)` is the backend's fluid reading of a collective on this topology.

    `slowdown` holds the ranks whose kernels take longer, with their factors; rank r is GPU r.
    """

    topology: Topology
    wire: WireOf
    slowdown: Mapping[int, float] = field(default_factory=dict)
