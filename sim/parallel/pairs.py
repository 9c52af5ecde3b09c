"""Overlapped pairs: the all-to-alls of experts in a forward pass run beside the kernels of a
backward pass of another microbatch, and the other way round.

DeepSeek-AI 2024, arXiv 2412.19437, section 3.2.1 (DualPipe, figure 4); Megatron-Core's
`overlap_moe_expert_parallel_comm`. Both passes are cut where tokens leave for or return from their
experts, and take turns: while tokens of one are under way, the other computes.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from sim.parallel.segments import Items
from sim.program.operations import Collective, Segment

Item = Segment | Collective
Part = tuple[list[Item], Collective | None]  # what is computed, then sent


def merged(forward: Iterable[Item], backward: Iterable[Item]) -> tuple[Items, Items]:
    """Both passes taking turns: all until the forward pass ends, and what is left of the other."""
    lanes = [list(_parts(forward)), list(_parts(backward))]
    done: list[Item] = []
    sent: list[Collective | None] = [None, None]
    end = 0
    for turn in range(max(map(len, lanes))):
        for lane, parts in enumerate(lanes):
            if turn >= len(parts):
                continue
            own, call = parts[turn]
            if (alone := sent[lane]) is not None:
                done.append(alone)
            other, sent[1 - lane], sent[lane] = sent[1 - lane], None, call
            done += own if other is None else _beside(own, other)
            if lane == 0:
                end = len(done)
    return tuple(done[:end]), tuple(done[end:])


def _parts(items: Iterable[Item]) -> Iterator[Part]:
    """A pass cut behind each of its all-to-alls."""
    kernels: list[Item] = []
    for item in items:
        if isinstance(item, Collective) and item.kind == "all_to_all":
            yield kernels, item
            kernels = []
        else:
            _append(kernels, item)
    yield kernels, None


def _append(row: list[Item], item: Item) -> None:
    """Add an item to a row, joined to a segment of the same cause before it."""
    last = row[-1] if row else None
    if (
        isinstance(item, Segment)
        and isinstance(last, Segment)
        and item.cause == last.cause
        and not (item.beside or last.beside or item.duration.waits or last.duration.waits)
    ):
        row[-1] = _joined(last, item)
    else:
        row.append(item)


def _joined(first: Segment, second: Segment) -> Segment:
    kernels = dict(first.kernels)
    for family, seconds in second.kernels:
        kernels[family] = kernels.get(family, 0.0) + seconds
    return first.lasting(first.duration.then(second.duration), kernels)


def _beside(row: Sequence[Item], call: Collective) -> Items:
    """A call beside the longest segment of a row, in front of a row without any."""
    places = [
        (item.device, -place)
        for place, item in enumerate(row)
        if isinstance(item, Segment) and item.device > 0.0
    ]
    if not places:
        return (call, *row)
    place = -max(places)[1]
    segment = row[place]
    assert isinstance(segment, Segment)
    return (*row[:place], replace(segment, beside=(*segment.beside, call)), *row[place + 1 :])
