"""Edits that fuse neighbouring memory-bound kernels into one kernel, as a compiler does.

A chain is a sequence of element-wise kernels, and of reductions along the last dimension, over
tensors of equal size. The fused kernel reads the tensors that no kernel of the chain makes, and
writes the tensors that are used after the chain. Other results of the chain are never in memory.
Inductor does more: it also recomputes tensors that a backward pass would otherwise read, and fuses
reductions along other dimensions.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import prod

from sim.jobs.recorded.axes import Axes
from sim.jobs.recorded.edits.edit import (
    Block,
    Edit,
    blocks,
    line_of,
    most,
    place_of,
    rewritten,
    seconds_of,
)
from sim.jobs.recorded.kernels import kernel_of, short_name
from sim.jobs.recorded.recording import Event, Operator, Recording, Tensor
from sim.jobs.recorded.setup import Recorded
from sim.model.kernels import MemoryBound

_ALONE = (
    *("embedding", "index", "gather", "scatter", "sort", "topk", "nll_loss", "cat", "stack"),
    *("split_with_sizes_copy", "all_gather_copy", "chunk_cat", "max_pool", "batch_norm"),
    *("_foreach", "_fused", "_amp", "nonzero", "cumsum", "multinomial", "upsample", "random"),
)
_LINES = 3  # the most lines that are fused alone
_LEAST = 0.005  # such a line takes at least this share of the device's seconds


def edits(setup: Recorded) -> Iterator[Edit]:
    """Yield an edit that fuses all chains, and an edit for each line whose chains take longest."""
    kernels, saved = Counter[str](), defaultdict[str, float](float)
    total, forward = 0.0, set[str]()
    for recording, _ in setup.stages:
        seconds = seconds_of(recording, setup.time)
        total += sum(seconds)
        for chain in _chains(recording, ""):
            line = _line(recording, chain, seconds)
            forward |= {line} if recording.events[chain[0]].phase == "forward" else set()
            kernels[line] += len(chain) - 1
            saved[line] += sum(seconds[number] for number in chain)
    if not kernels:
        return
    yield Edit(
        change="compile the model: model = torch.compile(model)",
        why=f"it saves {kernels.total():,} kernels a step that read a result of the kernel before "
        "them; inductor saves more, as it recomputes tensors that a backward pass would read",
        line=most(saved),
        at=place_of(setup, "wrapper", "optimizer"),
        made=partial(fused, line=""),
    )
    for line in sorted(saved, key=lambda line: -saved[line])[:_LINES]:
        if line in forward and saved[line] > _LEAST * total:  # others only start backward passes
            yield Edit(
                change="compile this function alone (@torch.compile), or call a fused operator",
                why=f"{kernels[line]:,} of its kernels read a result of the kernel before them",
                line=line,
                at=line,
                made=partial(fused, line=line),
            )


def fused(recording: Recording, axes: Axes, line: str) -> Recording:
    """The recording with each chain fused into a kernel: all chains, or chains within a `line`."""
    taken = blocks(recording)
    new: dict[int, tuple[Event, ...]] = {}
    operators: list[Operator] = []
    dropped: set[int] = set()
    numbers: dict[tuple[object, ...], int] = {}
    for chain in _chains(recording, line):
        operator, inner = _fused(recording, chain, taken)
        key = operator.name, operator.inputs, operator.outputs, operator.written
        number = numbers.setdefault(key, len(recording.operators) + len(operators))
        if number == len(recording.operators) + len(operators):
            operators.append(operator)
        dropped |= inner
        new |= dict.fromkeys(chain, ())
        first = recording.events[chain[0]]
        new[chain[0]] = (replace(first, operator=number, views=0),)
    return rewritten(recording, new, operators=operators, dropped_blocks=frozenset(dropped))


def _chains(recording: Recording, line: str) -> Iterator[list[int]]:
    """Yield the events of each chain of two or more kernels that can be fused."""
    sizes = [_loop(operator) for operator in recording.operators]
    chain: list[int] = []
    for number, event in enumerate(recording.events):
        size = sizes[event.operator] if event.kind == "kernel" else 0
        usable = (
            size
            and event.phase != "optimizer"
            and not event.graph
            and (not line or line_of(recording, event) == line)
        )
        if not (usable and chain and _goes_on(recording, chain[-1], event, sizes)):
            if len(chain) > 1:
                yield chain
            chain = []
        if usable:
            chain.append(number)
    if len(chain) > 1:
        yield chain


def _goes_on(recording: Recording, last: int, event: Event, sizes: Sequence[int]) -> bool:
    before = recording.events[last]
    same = ("stream", "phase", "again", "within")
    return (
        not event.reads
        and sizes[before.operator] == sizes[event.operator]
        and all(getattr(before, key) == getattr(event, key) for key in same)
    )


def _loop(operator: Operator) -> int:
    """The elements over which an operator loops; 0 if the operator cannot be fused."""
    name, kernel = short_name(operator), kernel_of(operator)
    if not isinstance(kernel, MemoryBound) or kernel.launches > 1 or not operator.outputs:
        return 0
    if operator.name.startswith("inductor.") or any(part in name for part in _ALONE):
        return 0
    if name.endswith("_"):  # compilers do not see in-place sums and buckets of gradients
        return 0
    if name == "_to_copy" and not operator.inputs:  # a copy from the host
        return 0
    size = max(prod(t.shape) for t in (*operator.inputs, *operator.outputs))
    made = max(prod(t.shape) for t in operator.outputs)
    last = max((t.shape[-1] for t in operator.inputs if t.shape), default=1)
    return size if made in (size, size // max(last, 1)) else 0


def _fused(
    recording: Recording, chain: Sequence[int], taken: dict[int, list[Block]]
) -> tuple[Operator, frozenset[int]]:
    """The fused operator of a chain, and the blocks that are no longer needed."""
    made: defaultdict[object, int] = defaultdict(int)
    reads: list[Tensor] = []
    written, outputs, inner = 0.0, list[Tensor](), set[int]()
    for number in chain:
        operator = recording.operators[recording.events[number].operator]
        asked = Counter(map(_shape, operator.inputs))
        for tensor in operator.inputs:
            if asked[_shape(tensor)] > made[_shape(tensor)]:
                asked[_shape(tensor)] -= 1
                reads.append(tensor)
        inside = [block for block in taken.get(number, ()) if _within(block, chain)]
        inner |= {block.number for block in inside}
        written += max(operator.written - sum(block.bytes for block in inside), 0.0)
        kept = Counter(block.bytes for block in inside)
        for tensor in operator.outputs:
            made[_shape(tensor)] += 1
            if kept[round(tensor.bytes)] > 0:
                kept[round(tensor.bytes)] -= 1
            else:
                outputs.append(tensor)
    names = [short_name(recording.operators[recording.events[n].operator]) for n in chain]
    name = f"inductor.fused_{'_'.join(dict.fromkeys(names))}"
    return (
        Operator(name=name, inputs=tuple(reads), outputs=tuple(outputs), written=written),
        frozenset(inner),
    )


def _within(block: Block, chain: Sequence[int]) -> bool:
    """Whether a block is freed before any kernel after the chain could read it."""
    return block.given is not None and block.given <= chain[-1] + 1


def _shape(tensor: Tensor) -> tuple[str, int]:
    return tensor.dtype, prod(tensor.shape)


def _line(recording: Recording, chain: Sequence[int], seconds: Sequence[float]) -> str:
    """The line that takes most of a chain's seconds."""
    weights = defaultdict[str, float](float)
    for number in chain:
        weights[line_of(recording, recording.events[number])] += seconds[number]
    return most(weights)
