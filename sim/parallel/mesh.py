"""The mesh: ranks as points of a grid whose axes are the degrees of parallelism.

The coordinates of rank r are the mixed-radix digits of r, the first axis varying fastest (as in
Megatron-LM's `RankGenerator`). With the order "tp-cp-dp-pp", tensor-parallel peers are neighbours
and pipeline stages lie farthest apart. Everything here is arithmetic on one rank; a mesh of 65,536
ranks costs as much as a mesh of eight.

If a model has experts, the ranks of a stage have two layouts: one of attention (tp, cp, dp) and one
of experts (etp, ep, and the remaining data parallelism). Both write a rank's number in mixed
radices; the mesh holds the digits from which both are composed (Megatron-Core's parallel folding,
Liu et al. 2025). Every axis says what its ranks divide. Axes that divide experts add no ranks.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Literal

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.plugins import modules, remembered

_FOLDER = "sim.parallel.axes"

Divided = Literal["weights", "layers", "sequence", "batch", "experts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A degree of parallelism. `place` sorts axes that an order leaves out, fastest-varying first.
    Ranks along an axis that divides the batch or the sequence hold the same parameters and sum
    their gradients. `shards_states` says whether ZeRO also divides states over this axis. If a plan
    keeps second shares of weights near (`reshard`), backward passes gather over the axes that are
    not `far`."""

    name: str
    divides: Divided
    place: int
    shards_states: bool = False
    far: bool = False


@remembered(_FOLDER)
def every_axis() -> Mapping[str, Axis]:
    """Return all axes by name, in order of their place."""
    known = (axis for module in modules(_FOLDER).values() for axis in module.AXES)
    return {axis.name: axis for axis in sorted(known, key=lambda axis: axis.place)}


@remembered(_FOLDER)
def axes() -> Mapping[str, Axis]:
    """Return the axes whose sizes multiply to the number of ranks.

    >>> list(axes())
    ['tp', 'ulysses', 'cp', 'dp', 'dp_hpz', 'dp_replicate', 'pp']
    """
    return {name: axis for name, axis in every_axis().items() if axis.divides != "experts"}


@remembered(_FOLDER)
def dividing(*divided: Divided) -> tuple[str, ...]:
    """Return the names of the axes that divide one of `divided`.

    >>> dividing("batch"), dividing("batch", "sequence")
    (('dp', 'dp_hpz', 'dp_replicate'), ('ulysses', 'cp', 'dp', 'dp_hpz', 'dp_replicate'))
    """
    return tuple(axis.name for axis in every_axis().values() if axis.divides in divided)


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
                raise InputError(f"plan, {axis}", f"{size!r} is no degree", f"set {axis} >= 1")

    @property
    def size(self) -> int:
        """Number of ranks in the mesh."""
        return prod(self.axes.values())

    def stride(self, axis: str) -> int:
        """Return the difference of the numbers of two ranks that are neighbours along an axis."""
        stride = 1
        for name, size in self.axes.items():
            if name == axis:
                return stride
            stride *= size
        raise KeyError(axis)

    def coordinate(self, rank: int, axis: str) -> int:
        """Return a rank's coordinate along one axis: (rank // stride) mod size."""
        return rank // self.stride(axis) % self.axes[axis]

    def coordinates(self, rank: int) -> dict[str, int]:
        """Return a rank's coordinate along every axis. Raises `IndexError` if there is none."""
        if not 0 <= rank < self.size:
            raise IndexError(f"rank {rank} of {self.size}")
        coordinates = {}
        for axis, size in self.axes.items():
            rank, coordinates[axis] = divmod(rank, size)
        return coordinates


Sizes = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Layouts:
    """The mesh, and the axes of the mesh that each axis of a plan consists of."""

    mesh: Mapping[str, int]
    parts: Mapping[str, tuple[str, ...]]


@lru_cache(maxsize=4096)
def layouts(sizes: Sizes, experts: Sizes) -> Layouts:
    """Return the common refinement of two layouts of a stage's ranks, both fastest-varying first.

    An axis of `sizes` is cut into numbered digits at the points at which an axis of `experts`
    begins or ends. Raises `InputError` for a size that does not divide.

    >>> two = layouts((("tp", 2), ("dp", 16), ("pp", 4)), (("etp", 1), ("ep", 8)))
    >>> two.mesh
    {'tp': 2, 'dp.1': 4, 'dp.2': 4, 'pp': 4}
    >>> two.parts["dp"], two.parts["ep"]
    (('dp.1', 'dp.2'), ('tp', 'dp.1'))
    """
    bounds = [1]
    for _, size in experts:
        bounds.append(bounds[-1] * size)
    mesh, parts, first, ranks = {}, {}, {}, 1
    for axis, size in sizes:
        digits = (size,) if axis == "pp" else tuple(_digits(axis, ranks, size, bounds))
        names = (
            [axis]
            if len(digits) == 1
            else [f"{axis}.{number + 1}" for number in range(len(digits))]
        )
        parts[axis] = tuple(names)
        for name, digit in zip(names, digits, strict=True):
            mesh[name] = digit
            if axis != "pp":
                first[name], ranks = ranks, ranks * digit
    if bounds[-1] > ranks:
        product = "*".join(axis for axis, size in experts if size > 1)
        fault = f"{product} = {bounds[-1]} but a stage has {ranks} ranks"
        raise InputError("plan, ep", fault, "lower ep, or give each stage more ranks")
    for (axis, _), (start, end) in zip(experts, pairwise(bounds), strict=True):
        parts[axis] = tuple(name for name, at in first.items() if start <= at < end)
    return Layouts(mesh, parts)


def _digits(axis: str, ranks: int, size: int, bounds: list[int]) -> Iterator[int]:
    """Yield the digits of an axis of `size` with stride `ranks`, cut at the bounds inside it."""
    end = ranks * size
    for bound in bounds:
        if not ranks < bound < end:
            continue
        if bound % ranks or end % bound:
            fault = f"experts on {bound} neighbouring ranks do not divide {axis} = {size} evenly"
            raise InputError("plan, ep", fault, "change ep or etp")
        yield bound // ranks
        ranks = bound
    yield end // ranks


def axis_of(part: str) -> str:
    """Return the axis of a plan to which an axis of the mesh belongs as a digit.

    >>> axis_of("dp.2"), axis_of("tp")
    ('dp', 'tp')
    """
    return part.partition(".")[0]
