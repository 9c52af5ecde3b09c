"""A backend: the library that turns a call into bytes on wires, such as NCCL.

>>> from sim.collectives.shape import Fabric, Shape
>>> dgx = Fabric(generation="hopper", gpus_per_node=8, port_bandwidth=450e9, nics_per_node=8,
...              nic_bandwidth=50e9, network="infiniband", nvls=True)
>>> wire = load("nccl").wire("all_reduce", 64e6, Shape.of(32, 8), dgx)
>>> wire.algorithm, wire.protocol
('nvls_tree', 'simple')
"""

from functools import cache
from typing import Protocol

from sim import library
from sim.collectives.gloo import Gloo
from sim.collectives.nccl import Nccl
from sim.collectives.nccl_constants import Constants
from sim.collectives.shape import Fabric, Shape, Wire


class Backend(Protocol):
    """What the engine asks of a collective library."""

    def wire(self, kind: str, size: float, shape: Shape, fabric: Fabric) -> Wire:
        """The fluid reading of one call of `size` bytes (as nccl-tests counts them)."""


@cache
def load(name: str = "nccl") -> Backend:
    """The backend with the constants of topologies/backends/<name>.toml, whose `library` it is.

    Raises `InputError` where there is no such file or it does not describe a backend.
    """
    path = library.find("topologies/backends", name)
    data = library.read(path)
    if data.pop("library", "nccl") == "gloo":
        return library.validate(data, Gloo, str(path))
    return Nccl(library.validate(data, Constants, str(path)))
