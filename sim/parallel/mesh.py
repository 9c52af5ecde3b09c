"""The mesh: ranks as points of a grid whose axes are the degrees of parallelism.

Rank r has the mixed-radix digits of r as its coordinates, the first axis varying fastest, as in
Megatron-LM's `RankGenerator`: with the order "tp-cp-dp-pp" tensor-parallel peers are
neighbours and pipeline stages lie farthest apart. Everything here is arithmetic on one rank; a
mesh of 65,536 ranks costs no more than one of eight.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from sim.config.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """Axis name -> size, fastest-varying first.

    Raises `InputError` for a size that is not a positive whole number.

    >>> mesh = Mesh(axes={"tp": 8, "dp": 4, "pp": 2})
    >>> mesh.size, mesh.stride("pp")
    (64, 32)
    >>> mesh.coordinates(43)
    {'tp': 3, 'dp': 1, 'pp': 1}
    """

    axes: Mapping[str, int]

    def __post_init__(self) -> None:
        for axis, size in self.axes.items():
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise InputError("plan", f"{axis} = {size!r} is no degree", f"set {axis} >= 1")

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return prod(self.axes.values())

    def stride(self, axis: str) -> int:
        """The distance between ranks that are neighbours along an axis."""
        stride = 1
        for name, size in self.axes.items():
            if name == axis:
                return stride
            stride *= size
        raise KeyError(axis)

    def coordinate(self, rank: int, axis: str) -> int:
        """Where a rank lies along one axis: (rank // stride) mod size."""
        return rank // self.stride(axis) % self.axes[axis]

    def coordinates(self, rank: int) -> dict[str, int]:
        """Where a rank lies along every axis. Raises `IndexError` for a rank outside."""
        if not 0 <= rank < self.size:
            raise IndexError(f"rank {rank} of {self.size}")
        coordinates = {}
        for axis, size in self.axes.items():
            rank, coordinates[axis] = divmod(rank, size)
        return coordinates
