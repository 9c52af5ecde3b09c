"""A backend: the library that turns a call into bytes on wires, such as NCCL.

>>> from sim.collectives.group import GroupShape
>>> from sim.collectives.interconnect import Interconnect
>>> dgx = Interconnect(generation="hopper", gpus_per_node=8, port_bandwidth=450e9, nics_per_node=8,
...                    nic_bandwidth=50e9, network="infiniband", nvls=True)
>>> cost = load("nccl").call_cost(CollectiveCall("all_reduce", 64e6, GroupShape.of(32, 8), dgx))
>>> cost.algorithm, cost.protocol
('nvls_tree', 'simple')
"""

from functools import lru_cache
from pathlib import Path
from typing import Protocol

from sim.collectives.interconnect import CallCost, CollectiveCall
from sim.collectives.libraries import profile
from sim.collectives.libraries.gloo import Gloo
from sim.collectives.libraries.nccl import Nccl
from sim.collectives.libraries.nccl_constants import NcclConstants
from sim.collectives.libraries.xla import Xla
from sim.config import catalog
from sim.config.files import stamp

_OTHERS: dict[str, type[Gloo] | type[Xla]] = {"gloo": Gloo, "xla": Xla}


class Backend(Protocol):
    """What the engine asks of a collective library."""

    def call_cost(self, call: CollectiveCall) -> CallCost:
        """The cost of one call."""


def load(name: str = "nccl", *, where: str = "command line") -> Backend:
    """The backend of a name: topologies/backends/<name>.toml, or a profile measured somewhere.

    A profile (`sim.collectives.libraries.profile`) changes constants of the library that it names.
    The same name gives the same object as long as its files stay as they are. Raises `InputError`
    where there is no such file or it does not describe a backend.
    """
    path = profile.located(name, where=where)
    measured = profile.read(path, stamp(path)) if path else None
    own = measured.backend if measured else name
    constants = catalog.find("topologies/backends", own, where=where)
    lineage = tuple(map(stamp, catalog.lineage("topologies/backends", constants)))
    return _load(constants, lineage, path if measured else None, stamp(path or constants))


@lru_cache(maxsize=16)
def _load(
    path: Path,
    version: tuple[tuple[int, ...], ...],
    changes: Path | None,
    changes_version: tuple[int, ...],
) -> Backend:
    data, place = catalog.document("topologies/backends", path), catalog.place(path)
    if changes and (measured := profile.read(changes, changes_version)):
        data = catalog.overlaid(data, measured.constants)
        place = f"{catalog.place(changes)}, constants"
    library = data.pop("library", "nccl")
    if library in _OTHERS:
        return catalog.validate(data, _OTHERS[library], place)
    return Nccl(catalog.validate(data, NcclConstants, place))
