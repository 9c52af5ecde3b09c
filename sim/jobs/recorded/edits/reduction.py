"""Edits that make transfers of gradients and weights fewer, larger or narrower."""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import prod

from sim.jobs.recorded.axes import Axes
from sim.jobs.recorded.edits.edit import (
    Edit,
    data_calls,
    kernel_events,
    line_of,
    place_of,
    rewritten,
)
from sim.jobs.recorded.edits.sharding import shard_calls
from sim.jobs.recorded.kernels import short_name
from sim.jobs.recorded.recording import (
    PARTS,
    Allocation,
    Event,
    Operator,
    Recording,
    Tensor,
    passes_of,
)
from sim.jobs.recorded.setup import Recorded

_LARGE, _CLOSE = 1 << 20, 0.05  # bytes of a large reduction; relative tolerance of sizes
_BUCKETS = (2, 4)  # factors by which buckets grow
_SUMS = ("all_reduce", "reduce_scatter")
_WIDE, _NARROW = 4.0, 2.0  # bytes of an element of a gradient: fp32, bf16
_GATHERING = ("all_gather_copy_in", "split_with_sizes_copy")  # kernels of FSDP2
_NEAR = 8  # events before a reduction that are searched for the kernel that writes its bytes
_FILLING = ("copy_", "div_", "mul_")  # kernels that put a gradient into a bucket of DDP
_TORCH_BUCKET = 25  # MiB of DDP's buckets, unless a script says otherwise


def edits(setup: Recorded) -> Iterator[Edit]:
    """Yield edits with fewer, larger or narrower reductions of gradients, and with weights that
    stay gathered."""
    recording, axes = setup.stages[0]
    sums = data_calls(recording, axes, *_SUMS)
    if not sums:
        return
    line = line_of(recording, recording.events[sums[-1]])
    of_wrapper = partial(Edit, line=line, at=place_of(setup, "wrapper"))
    if early := _early(recording, sums):
        yield Edit(
            change="sum gradients in the last microbatch only: model.no_sync() of DDP, "
            "set_requires_gradient_sync(False) of FSDP2",
            why=f"{len(early):,} of {len(sums):,} reductions come before the last microbatch",
            line=line,
            at=place_of(setup, "call"),
            made=without_early,
        )
    if _bucketed(recording, sums):
        for times in _BUCKETS:
            yield of_wrapper(
                change=f"DDP(..., bucket_cap_mb={_TORCH_BUCKET * times}), or {times} times yours",
                why="fewer, larger buckets lose less time to latency",
                made=partial(with_buckets, times=times),
            )
        if _copies(recording, axes):
            yield of_wrapper(
                change="DDP(..., gradient_as_bucket_view=True)",
                why="each gradient is copied into its bucket",
                made=without_copies,
            )
    if any(_wide(recording, number) for number in sums):
        yield of_wrapper(
            change="reduce gradients in bf16: bf16_compress_hook of DDP, "
            "a policy with reduce_dtype=torch.bfloat16 of FSDP2",
            why="gradients are summed in fp32",
            made=in_bf16,
        )
    if again := _regathered(recording, axes):
        yield of_wrapper(
            change="fully_shard(..., reshard_after_forward=False)",
            why="weights are gathered again for the backward pass",
            line=line_of(recording, recording.events[again[0]]),
            made=kept_gathered,
        )


def without_early(recording: Recording, axes: Axes) -> Recording:
    """The recording in which gradients are summed over ranks once a step. If gradients are sharded,
    whole gradients are held until the end of the step."""
    early = _early(recording, data_calls(recording, axes, *_SUMS))
    of = _microbatches(recording)
    unsummed = {of[n] for n in early if recording.events[n].name == "all_reduce"}
    buckets = [n for n in _bucket_kernels(recording, axes) if of[n] in unsummed]
    new: dict[int, tuple[Event, ...]] = dict.fromkeys((*early, *buckets), ())
    scattered = [n for n in early if recording.events[n].name == "reduce_scatter"]
    if not scattered:
        return rewritten(recording, new)
    sums = dict[int, Operator]()
    for number in scattered:
        place = _before(recording, number, "chunk_cat")
        if place is not None:  # this kernel filled the scatter's input; now it adds whole gradients
            sums[place] = _summed(recording, place)
            event = recording.events[place]
            new[place] = (replace(event, operator=len(recording.operators) + len(sums) - 1),)
    held = sum(recording.events[n].bytes for n in scattered if of[n] == of[scattered[0]])
    end = len(recording.events)
    rows = _with_blocks(recording, [(scattered[0], end, round(held))], "gradients")
    return rewritten(recording, new, memory=rows, operators=tuple(sums.values()))


def _before(recording: Recording, number: int, name: str) -> int | None:
    """The last kernel of this name among the few events before an event, or None."""
    near = _near(recording, number)
    return next((place for place, operator in near if short_name(operator) == name), None)


def _near(recording: Recording, number: int) -> Iterator[tuple[int, Operator]]:
    """Yield the kernels among the few events before an event, the last first."""
    for place in reversed(range(max(number - _NEAR, 0), number)):
        event = recording.events[place]
        if event.kind == "kernel":
            yield place, recording.operators[event.operator]


def _summed(recording: Recording, place: int) -> Operator:
    """The operator that adds gradients to the fp32 sums of earlier microbatches."""
    given = recording.operators[recording.events[place].operator].inputs
    sums = tuple(replace(t, dtype="float32", width=_WIDE) for t in given)
    size = sum(t.bytes for t in sums)
    return Operator(
        name="aten._foreach_add_", inputs=(*sums, *given), written=size, flags={"lists": 2}
    )


def with_buckets(recording: Recording, axes: Axes, times: int) -> Recording:
    """The recording in which up to `times` neighbouring reductions of a microbatch are joined into
    one, in the place of the last of them."""
    of = _microbatches(recording)
    new: dict[int, tuple[Event, ...]] = {}
    row: list[int] = []
    for number in data_calls(recording, axes, "all_reduce"):
        if row and (
            of[row[0]] != of[number] or len(row) == times or not _alike(recording, row[0], number)
        ):
            row = []
        row.append(number)
        event = recording.events[number]
        size = sum(recording.events[n].bytes for n in row)
        new |= dict.fromkeys(row[:-1], ())
        new[number] = (replace(event, bytes=size),)
    return rewritten(recording, new)


def without_copies(recording: Recording, axes: Axes) -> Recording:
    """The recording in which gradients are views of their buckets. No kernel copies them back. The
    block in which a gradient is computed is freed after its copy into the bucket. A gradient that
    is in its bucket already is divided in place, which moves as many bytes as a copy."""
    of = _microbatches(recording)
    last = {of[n]: n for n in data_calls(recording, axes, "all_reduce")}
    copies = _copies(recording, axes)
    out = {n for n in copies if n > last.get(of[n], n)}
    rows = _given_back(recording, [n for n in copies if n not in out])
    return rewritten(recording, dict.fromkeys(out, ()), memory=rows)


def _given_back(recording: Recording, copies: Sequence[int]) -> tuple[Allocation, ...]:
    """The recording's memory without the blocks of gradients from before the step. Other blocks of
    gradients are freed after the first copy of equally many bytes. Gradients that no copy puts into
    a bucket, such as gradients of modules outside DDP, are held as long as before."""
    part = PARTS.index("gradients")
    waiting: defaultdict[float, deque[int]] = defaultdict(deque)
    for number in copies:
        written = recording.operators[recording.events[number].operator].written
        waiting[written].append(number)
    copied = {*waiting}
    ends: dict[int, int] = {}  # by block: the event before which it is freed; -1: before the step
    for row in recording.memory:
        if row.part == part and row.bytes in copied:
            sizes = waiting[row.bytes]
            while sizes and sizes[0] < row.event:
                sizes.popleft()
            if row.event < 0:
                ends[row.block] = row.event
            elif sizes:
                ends[row.block] = sizes.popleft() + 1
    rows = [
        row
        for row in recording.memory
        if row.block not in ends or (row.bytes > 0 and ends[row.block] >= 0)
    ]
    freed = [Allocation(end, block, 0, 0, -1, part) for block, end in ends.items() if end >= 0]
    return tuple(sorted([*rows, *freed], key=lambda row: row.event))


def in_bf16(recording: Recording, axes: Axes) -> Recording:
    """The recording in which gradients are reduced in bf16 and then cast back. FSDP2 casts
    gradients as it joins them. The hook of DDP casts and divides a bucket before the reduction, and
    casts it back on a stream of its own (torch/distributed/algorithms/ddp_comm_hooks/
    default_hooks.py, `_compress_hook`)."""
    new: dict[int, tuple[Event, ...]] = {}
    operators: list[Operator] = []
    unpacked: dict[int, int] = {}  # by a collective's mark: the mark set after its cast back
    blocks: list[tuple[int, int, int]] = []  # buckets in bf16, which the host frees at once
    aside = 1 + max(event.stream for event in recording.events)
    free = 1 + max(event.mark for event in recording.events)
    for number in data_calls(recording, axes, *_SUMS):
        if not _wide(recording, number):
            continue
        event = recording.events[number]
        sent = replace(event, bytes=event.bytes * _NARROW / _WIDE)
        new[number] = (sent,)
        if _fills(recording, number) is None:
            continue
        blank = replace(event, name="", group=-1, bytes=0.0, mark=0)
        pack, divide, unpack = (
            replace(blank, kind="kernel", operator=len(recording.operators) + len(operators) + n)
            for n in range(3)
        )
        operators += _hooked(event.bytes)
        unpacked[event.mark] = free + len(unpacked)
        blocks.append((number, number + 1, round(sent.bytes)))
        behind = replace(unpack, stream=aside, reads=(event.mark,))
        end = replace(blank, kind="record", stream=aside, mark=unpacked[event.mark])
        new[number] = (pack, divide, sent, behind, end)
    for number, event in enumerate(recording.events):
        for mark in {*event.reads, *([event.mark] if event.kind == "done" else ())}:
            if mark in unpacked:
                wait = Event(
                    kind="wait", stream=event.stream, phase=event.phase, mark=unpacked.pop(mark)
                )
                new[number] = (wait, *new.get(number, (event,)))
    rows = _with_blocks(recording, blocks, "temporary")
    return rewritten(recording, new, memory=rows, operators=operators)


def _hooked(size: float) -> tuple[Operator, Operator, Operator]:
    """The operators of DDP's hook on a bucket of `size` bytes: cast, division, cast back."""
    shape = (round(size / _WIDE),)
    wide = Tensor(dtype="float32", width=_WIDE, shape=shape)
    narrow = Tensor(dtype="bfloat16", width=_NARROW, shape=shape)
    return (
        Operator(name="aten._to_copy", inputs=(wide,), outputs=(narrow,), written=narrow.bytes),
        Operator(name="aten.div_", inputs=(narrow,), outputs=(narrow,), written=narrow.bytes),
        Operator(name="aten.copy_", inputs=(narrow,), outputs=(wide,), written=wide.bytes),
    )


def _fills(recording: Recording, number: int) -> Operator | None:
    """The operator that has last put a gradient into the bucket that an all-reduce of DDP sums;
    None if no such operator is near."""
    event = recording.events[number]
    for place, operator in _near(recording, number) if event.name == "all_reduce" else ():
        if recording.events[place].line == event.line and short_name(operator) in _FILLING:
            return operator
    return None


def kept_gathered(recording: Recording, axes: Axes) -> Recording:
    """The recording in which weights stay gathered from a forward pass to its backward pass."""
    again = _regathered(recording, axes)
    before = [n for n in data_calls(recording, axes, "all_gather") if n not in again]
    blocks = []
    for number in again:
        event = recording.events[number]
        place = max((n for n in before if n < number and _alike(recording, n, number)
                     and recording.events[n].bytes == event.bytes), default=number)  # fmt: skip
        before = [n for n in before if n != place]
        blocks.append((place, number, round(event.bytes)))
    copies = [n for n, e, operator in kernel_events(recording)
              if e.phase == "backward" and short_name(operator) in _GATHERING]  # fmt: skip
    rows = _with_blocks(recording, blocks, "parameters")
    return rewritten(recording, dict.fromkeys((*again, *copies), ()), memory=rows)


def _microbatches(recording: Recording) -> list[int]:
    """The microbatch of each event; outside of passes, the microbatch of the event before."""
    found, now = [], 0
    for action in passes_of(recording):
        now = now if action is None else action.microbatch
        found.append(now)
    return found


def _early(recording: Recording, sums: Sequence[int]) -> list[int]:
    """Reductions in backward passes of microbatches other than the last."""
    of = _microbatches(recording)
    back = [n for n in sums if recording.events[n].phase == "backward"]
    last = max((of[n] for n in back), default=0)
    return [n for n in back if of[n] < last]


def _bucketed(recording: Recording, sums: Sequence[int]) -> bool:
    """Whether DDP sums gradients in several buckets."""
    events = [recording.events[n] for n in sums]
    return sum(e.name == "all_reduce" and e.phase == "backward" for e in events) > 1


def _alike(recording: Recording, number: int, other: int) -> bool:
    first, second = recording.events[number], recording.events[other]
    return (first.group, first.phase == "optimizer") == (second.group, second.phase == "optimizer")


def _copies(recording: Recording, axes: Axes) -> list[int]:
    """Copies of gradients into buckets and out of them."""
    return [
        number
        for number in _bucket_kernels(recording, axes)
        if short_name(recording.operators[recording.events[number].operator]) == "copy_"
    ]


def _bucket_kernels(recording: Recording, axes: Axes) -> list[int]:
    """The kernels of DDP's buckets: in-place writes in backward passes, at a line with an
    all-reduce."""
    lines = {recording.events[n].line for n in data_calls(recording, axes, "all_reduce")}
    return [
        number
        for number, event, operator in kernel_events(recording)
        if event.phase == "backward" and event.line in lines and short_name(operator) in _FILLING
    ]


def _wide(recording: Recording, number: int) -> bool:
    """Whether a reduction is large and of fp32. The operator that filled DDP's bucket shows the
    precision; otherwise a kernel just before the reduction does, if it writes as many bytes."""
    size = recording.events[number].bytes
    if (fills := _fills(recording, number)) is not None:
        wide = any(tensor.width > _NARROW for tensor in fills.outputs or fills.inputs)
        return size > _LARGE and wide
    for _, operator in _near(recording, number) if size > _LARGE else ():
        elements = sum(prod(tensor.shape) for tensor in operator.inputs)
        if abs(operator.written / size - 1.0) < _CLOSE and elements:
            return size / elements > _NARROW + _CLOSE
    return False


def _regathered(recording: Recording, axes: Axes) -> list[int]:
    """Gathers of sharded weights in backward passes."""
    calls = ((n, recording.events[n]) for n in shard_calls(recording, axes))
    return [n for n, e in calls if (e.name, e.phase) == ("all_gather", "backward")]


def _with_blocks(
    recording: Recording, blocks: Iterable[tuple[int, int, int]], part: str
) -> tuple[Allocation, ...]:
    """The recording's memory, if known, with more `blocks`. A block is given as the event before
    which it is allocated, the event before which it is freed, and its bytes."""
    if not recording.memory:
        return ()
    free, part_number = 1 + max(row.block for row in recording.memory), PARTS.index(part)
    rows = [*recording.memory]
    for number, (taken, given, size) in enumerate(blocks, free):
        rows += [Allocation(taken, number, size, 0, -1, part_number)]
        rows += [Allocation(given, number, 0, 0, -1, part_number)]
    return tuple(sorted(rows, key=lambda row: row.event))
