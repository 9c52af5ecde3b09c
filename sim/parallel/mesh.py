"""The mesh: ranks as points of a grid whose axes are the degrees of parallelism.

Rank r has the mixed-radix digits of r as its coordinates, the first axis varying fastest, as in
Megatron-LM's `RankGenerator`: with the order "tp-cp-dp-pp" tensor-parallel peers are
neighbours and pipeline stages lie farthest apart. Everything here is arithmetic on one rank; a
mesh of 65,536 ranks costs no more than one of eight.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
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
    >>> mesh.rank({"tp": 3, "dp": 1, "pp": 1})
    43
    """

    axes: Mapping[str, int]

    def __post_init__(self) -> None:
        for axis, size in self.axes.items():
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise InputError("plan", f"{axis} = {size!r} is no degree", f"set {axis} >= 1")

    @classmethod
    def ordered(cls, order: str, sizes: Mapping[str, int]) -> "Mesh":
        """A mesh whose axes are ranked as `order` says, the fastest-varying first.

        Axes that `sizes` leaves out have size 1. Raises `InputError` where an axis of more than
        one rank is missing from the order, or named twice.

        >>> dict(Mesh.ordered("tp-pp-dp", {"dp": 4, "pp": 2, "tp": 8}).axes)
        {'tp': 8, 'pp': 2, 'dp': 4}
        """
        names = order.split("-")
        if len(set(names)) < len(names) or "" in names:
            raise InputError("plan", f"rank order {order!r} is unclear", "name each axis once")
        for axis, size in sizes.items():
            if axis not in names and size != 1:
                remedy = f"write {order}-{axis}, or put {axis} where it belongs"
                raise InputError("plan", f"rank order {order!r} lacks {axis} = {size}", remedy)
        return cls(axes={axis: sizes.get(axis, 1) for axis in names})

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return prod(self.axes.values())

    def degree(self, *axes: str) -> int:
        """How many ranks differ in these axes only; an unknown axis has one.

        >>> Mesh(axes={"tp": 8, "dp": 4, "pp": 2}).degree("tp", "dp")
        32
        """
        return prod(self.axes.get(axis, 1) for axis in axes)

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

    def rank(self, coordinates: Mapping[str, int]) -> int:
        """The rank at these coordinates; 0 along every axis that they leave out."""
        for axis, index in coordinates.items():
            if not 0 <= index < self.axes[axis]:
                raise IndexError(f"{axis} {index} of {self.axes[axis]}")
        return sum(index * self.stride(axis) for axis, index in coordinates.items())

    def line(self, rank: int, axis: str) -> range:
        """The ranks that differ from this one along `axis` only, in order.

        >>> mesh = Mesh(axes={"tp": 2, "dp": 3, "pp": 2})
        >>> list(mesh.line(7, "dp"))
        [7, 9, 11]
        """
        stride = self.stride(axis)
        first = rank - self.coordinate(rank, axis) * stride
        return range(first, first + stride * self.axes[axis], stride)

    def group(self, rank: int, *axes: str) -> tuple[int, ...]:
        """The ranks that differ from this one in `axes` only, ascending.

        >>> Mesh(axes={"tp": 2, "dp": 3, "pp": 2}).group(7, "tp", "dp")
        (6, 7, 8, 9, 10, 11)
        """
        offsets = [
            [other - rank for other in self.line(rank, axis)] for axis in axes if axis in self.axes
        ]
        return tuple(sorted(rank + sum(steps) for steps in product(*offsets)))

    def groups(self, *axes: str) -> Iterator[tuple[int, ...]]:
        """Every group along `axes`, by its lowest rank: the one thing here that visits all ranks.

        >>> list(Mesh(axes={"tp": 2, "pp": 3}).groups("pp"))
        [(0, 2, 4), (1, 3, 5)]
        """
        others = [
            (0,) if axis in axes else self.line(0, axis) for axis in reversed(list(self.axes))
        ]
        for steps in product(*others):
            yield self.group(sum(steps), *axes)

    def neighbour(self, rank: int, axis: str, step: int) -> int:
        """The rank `step` places along an axis, around its end.

        >>> Mesh(axes={"tp": 2, "pp": 3}).neighbour(5, "pp", 1)
        1
        """
        there = (self.coordinate(rank, axis) + step) % self.axes[axis]
        return self.line(rank, axis)[there]
