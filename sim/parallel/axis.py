"""Axes of the mesh: what the ranks along each of them divide, and what follows from that.

Axes that divide experts add no ranks: they lie within the others, and give the ranks of a stage a
second layout (`sim.parallel.mesh`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sim.config.plugins import modules, remembered

_FOLDER = "sim.parallel.axes"

Divided = Literal["weights", "layers", "sequence", "batch", "experts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A degree of parallelism.

    `place` ranks axes that an order leaves out, fastest-varying first. Ranks along an axis that
    divides the batch or the sequence hold the same parameters and sum their gradients;
    `shards_states` says whether ZeRO divides states over them too, `far` whether all their weights
    are to be had without them where the plan keeps shares near.
    """

    name: str
    divides: Divided
    place: int
    shards_states: bool = False
    far: bool = False


@remembered(_FOLDER)
def every_axis() -> Mapping[str, Axis]:
    """All axes by name, in order of their place."""
    known = (axis for module in modules(_FOLDER).values() for axis in module.AXES)
    return {axis.name: axis for axis in sorted(known, key=lambda axis: axis.place)}


@remembered(_FOLDER)
def axes() -> Mapping[str, Axis]:
    """The axes whose sizes multiply to the number of ranks.

    >>> list(axes())
    ['tp', 'ulysses', 'cp', 'dp', 'dp_hpz', 'dp_replicate', 'pp']
    """
    return {name: axis for name, axis in every_axis().items() if axis.divides != "experts"}


@remembered(_FOLDER)
def dividing(*divided: Divided) -> tuple[str, ...]:
    """The axes that divide these.

    >>> dividing("batch"), dividing("batch", "sequence")
    (('dp', 'dp_hpz', 'dp_replicate'), ('ulysses', 'cp', 'dp', 'dp_hpz', 'dp_replicate'))
    """
    return tuple(axis.name for axis in every_axis().values() if axis.divides in divided)
