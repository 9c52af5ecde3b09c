"""A backend: the library that turns a call into bytes on wires, such as NCCL.

>>> from sim.collectives.schedule import GroupShape
>>> from sim.collectives.interconnect import Interconnect
>>> dgx = Interconnect(generation="hopper", gpus_per_node=8, port_bandwidth=450e9, nics_per_node=8,
...                    nic_bandwidth=50e9, network="infiniband", nvls=True)
>>> cost = load("nccl").call_cost(CollectiveCall("all_reduce", 1e6, GroupShape.of(32, 8), dgx))
>>> cost.algorithm, cost.protocol
('tree', 'll128')
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from sim.collectives.interconnect import CallCost, CollectiveCall
from sim.collectives.libraries.nccl import Nccl, NcclConstants
from sim.config import catalog
from sim.config.reads import remembered

if TYPE_CHECKING:
    from sim.collectives.libraries.profile import FabricProfile

_OTHERS = {"gloo": "Gloo", "xla": "Xla"}  # modules, which are loaded when needed, and their classes


class Backend(Protocol):
    """The questions that the engine asks of a collective library."""

    def call_cost(self, call: CollectiveCall) -> CallCost:
        """The cost of one call."""


@remembered(16)
def load(name: str = "nccl", *, where: str = "command line") -> Backend:
    """The backend of a name: topologies/backends/<name>.toml, or a measured profile.

    A profile (`sim.collectives.libraries.profile`) changes constants of the library that it names.
    The same name gives the same object as long as its files do not change. Raises `InputError`
    where there is no such file or the file does not describe a backend.
    """
    path = _located(name, where)
    found = measured(str(path), where=where) if path else None
    file = catalog.find("topologies/backends", found.backend if found else name, where=where)
    data, place = catalog.document("topologies/backends", file), catalog.place(file)
    if path and found:
        data = catalog.overlaid(data, found.constants)
        place = f"{catalog.place(path)}, constants"
    library = data.pop("library", "nccl")
    if library in _OTHERS:
        module = import_module(f"sim.collectives.libraries.{library}")
        backend: Backend = catalog.validate(data, getattr(module, _OTHERS[library]), place)
        return backend
    return Nccl(catalog.validate(data, NcclConstants, place))


def measured(name: str, *, where: str = "command line") -> "FabricProfile | None":
    """The profile of a name or path; None for a library of topologies/backends. Raises
    `InputError`."""
    if _located(name, where) is None:
        return None
    from sim.collectives.libraries.profile import find

    return find(name, where=where)


def _located(name: str, where: str) -> Path | None:
    """The file of a profile; None for a library of topologies/backends."""
    if not name.endswith(".toml") and catalog.has("topologies/backends", name):
        return None
    from sim.collectives.libraries.profile import located  # loaded for measured fabrics only

    return located(name, where=where)
