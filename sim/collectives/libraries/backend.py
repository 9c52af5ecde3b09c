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

from sim.collectives.libraries import profile
from sim.collectives.libraries.gloo import Gloo
from sim.collectives.libraries.nccl import Nccl
from sim.collectives.libraries.nccl_constants import Constants
from sim.collectives.shape import Fabric, Shape, Wire
from sim.config import catalog as library


class Backend(Protocol):
    """What the engine asks of a collective library."""

    def wire(self, kind: str, size: float, shape: Shape, fabric: Fabric) -> Wire:
        """The fluid reading of one call of `size` bytes (as nccl-tests counts them)."""


@cache
def load(name: str = "nccl", *, where: str = "command line") -> Backend:
    """The backend of a name: topologies/backends/<name>.toml, or a profile measured somewhere.

    A profile (`sim.collectives.libraries.profile`) changes constants of the library that it names.
    Raises `InputError` where there is no such file or it does not describe a backend.
    """
    measured = profile.find(name, where=where)
    own = measured.backend if measured else name
    path = library.find("topologies/backends", own, where=where)
    data = library.read(path)
    if measured:
        data = profile.over(data, measured.constants)
    place = f"{name}, constants" if measured else library.place(path)
    if data.pop("library", "nccl") == "gloo":
        return library.validate(data, Gloo, place)
    return Nccl(library.validate(data, Constants, place))
