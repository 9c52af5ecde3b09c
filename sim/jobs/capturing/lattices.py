"""Ranks of a process group as a recording has them: axes with strides."""

from sim.config.errors import InputError
from sim.jobs.recorded.axes import lattice
from sim.jobs.recorded.recording import Group


def group_of(ranks: tuple[int, ...]) -> Group:
    """Raises `InputError` for ranks that are no lattice.

    >>> group_of((1, 3, 9, 11))
    Group(first=1, axes=((2, 2), (8, 2)))
    """
    group = Group(first=ranks[0], axes=lattice(ranks))
    if tuple(sorted(group.ranks)) != ranks:
        shown = ", ".join(map(str, ranks[:8]))
        what = f"a process group of ranks {shown} ... is no axis of a mesh"
        raise InputError("sim capture", what, "make groups of ranks at equal distances")
    return group
