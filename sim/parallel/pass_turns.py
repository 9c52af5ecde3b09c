"""Passes that take turns.

In an overlapped pair, expert all-to-alls of a forward pass run beside kernels of another
microbatch's backward pass, and vice versa (DeepSeek-AI 2024, arXiv 2412.19437, section 3.2.1
(DualPipe, figure 4); Megatron-Core's `overlap_moe_expert_parallel_comm`). Both passes are cut at
their all-to-alls and take turns: while tokens of a pass are under way, the other pass computes.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from sim.parallel.segments import Items
from sim.program.memory import MemoryUse
from sim.program.operations import (
    INPUT,
    Collective,
    Compute,
    PassOps,
    Segment,
    Work,
    beside_kernels,
)
from sim.program.schedule import Kind

Item = Segment | Collective
Part = tuple[list[Item], Collective | None]  # items that compute, then the all-to-all after them


def merged(forward: Iterable[Item], backward: Iterable[Item]) -> tuple[Items, Items]:
    """Return two rows of two passes that take turns: the items of both until the forward pass ends,
    and the remaining items of the backward pass."""
    lanes = [list(_parts(forward)), list(_parts(backward))]
    done: list[Item] = []
    sent: list[Collective | None] = [None, None]
    end = 0
    for turn in range(max(map(len, lanes))):
        for lane, parts in enumerate(lanes):
            if turn >= len(parts):
                continue
            items, call = parts[turn]
            if (alone := sent[lane]) is not None:
                done.append(alone)
            other, sent[1 - lane], sent[lane] = sent[1 - lane], None, call
            done += items if other is None else _beside(items, other)
            if lane == 0:
                end = len(done)
    return tuple(done[:end]), tuple(done[end:])


def _parts(items: Iterable[Item]) -> Iterator[Part]:
    """Yield the parts of a pass, which is cut after each of its all-to-alls."""
    kernels: list[Item] = []
    for item in items:
        if isinstance(item, Collective) and item.kind == "all_to_all":
            yield kernels, item
            kernels = []
        else:
            _append(kernels, item)
    yield kernels, None


def _append(row: list[Item], item: Item) -> None:
    """Append an item to a row, or join it to the row's last segment if both have one cause."""
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
    """Return the row with a call beside its longest segment, or in front if it has no segment."""
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
    calls = (*segment.beside, beside_kernels(call, segment.device))
    return (*row[:place], replace(segment, beside=calls), *row[place + 1 :])


def sends_tokens(*passes: PassOps) -> bool:
    """Whether passes send tokens to experts."""
    calls = (call for ops in passes for call in ops.calls_inside)
    return any(isinstance(call, Collective) and call.kind == "all_to_all" for call in calls)


def turns(kind: Kind, alone: PassOps, beside: PassOps, memory: MemoryUse, name: str) -> PassOps:
    """Return the operations of an action in a pair that takes turns. A forward action runs the
    items of both passes until its own pass ends; an action of the backward pass runs the rest."""
    passes = (alone, beside) if kind == "F" else (beside, alone)
    flat = [
        [item for operation in ops if isinstance(operation, Compute)
         for item in operation.work.flat()]
        for ops in passes
    ]  # fmt: skip
    work = Work(name=name, items=merged(*flat)[kind != "F"])
    return PassOps((Compute(name="", work=work, after=(INPUT,), memory=memory),))
