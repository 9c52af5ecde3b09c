"""Context parallelism, recognised from what ranks send one another around attention."""

from collections.abc import Iterable, Iterator, Sequence

from sim.jobs.recorded.kernels import kernel_of
from sim.jobs.recorded.recording import Recording

_MOVES = ("all_gather", "all_to_all")


def context_strides(recordings: Iterable[Recording]) -> set[int]:
    """Strides of the axes along which keys and values (or heads) move: whatever is gathered or
    exchanged along them in forward passes comes right before or behind fused attention, while
    tensor parallelism and experts have a product between."""
    found: dict[tuple[int, int], bool] = {}
    for own in recordings:
        for axis, beside in _moves(own):
            found[axis] = found.get(axis, True) and beside
    return {stride for (stride, _), beside in found.items() if beside}


def _moves(own: Recording) -> Iterator[tuple[tuple[int, int], bool]]:
    """Each such call along one axis, a stride and a size, and whether attention is next to it."""
    families = [kernel_of(operator).family for operator in own.operators]
    marks = [families[e.operator] if e.kind == "kernel" else "" for e in own.events]
    before, behind = _nearest(marks), _nearest(marks[::-1])[::-1]
    for event, *near in zip(own.events, before, behind, strict=True):
        if event.kind == "collective" and event.name in _MOVES and event.phase == "forward":
            axes = own.groups[event.group].axes
            if len(axes) == 1 and not event.again:
                yield axes[0], "attention" in near


def _nearest(families: Sequence[str]) -> list[str]:
    """Of each place the last product or attention up to there."""
    last, found = "", []
    for family in families:
        last = family if family in ("gemm", "attention") else last
        found.append(last)
    return found
