"""Axes of the mesh: what the ranks along each of them divide, and what follows from that."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sim.config.plugins import modules, remembered
from sim.model.groups import ParameterGroup

_FOLDER = "sim.parallel.axes"

Divided = Literal["weights", "layers", "sequence", "batch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A degree of parallelism.

    `place` ranks axes that an order leaves out, fastest-varying first. Ranks along an axis that
    divides the batch or the sequence hold the same parameters and sum their gradients;
    `shards_states` says whether ZeRO divides states over them too.
    """

    name: str
    divides: Divided
    place: int
    shards_states: bool = False


@remembered(_FOLDER)
def axes() -> Mapping[str, Axis]:
    """All axes by name, in order of their place.

    >>> list(axes())
    ['tp', 'cp', 'dp', 'dp_replicate', 'pp']
    """
    known = (module.AXIS for module in modules(_FOLDER).values())
    return {axis.name: axis for axis in sorted(known, key=lambda axis: axis.place)}


@remembered(_FOLDER)
def dividing(*what: Divided) -> tuple[str, ...]:
    """The axes that divide these.

    >>> dividing("batch"), dividing("batch", "sequence")
    (('dp', 'dp_replicate'), ('cp', 'dp', 'dp_replicate'))
    """
    return tuple(axis.name for axis in axes().values() if axis.divides in what)


@remembered(_FOLDER)
def gradient_axes(group: ParameterGroup) -> tuple[str, ...]:
    """The axes over which the gradients of a group are summed."""
    return tuple(name for name in dividing("batch", "sequence") if name not in group.split_by)


@remembered(_FOLDER)
def state_axes(group: ParameterGroup) -> tuple[str, ...]:
    """Those of them over which ZeRO shards the group's states."""
    known = axes()
    return tuple(name for name in gradient_axes(group) if known[name].shards_states)


@remembered(_FOLDER)
def replica_axes(group: ParameterGroup) -> tuple[str, ...]:
    """Those of them over which sharded gradients are still to be summed."""
    known = axes()
    return tuple(name for name in gradient_axes(group) if not known[name].shards_states)
