"""A pipeline of passes as wavefronts of maxima and sums, for many layouts of one shape at once.

Layouts with the same schedule, stages, microbatches and chunks differ only in what their passes
and messages last. A pass ends at max(ready + device, host + lead) (see `sim.program.Segment`); it
is ready when its stage is free and its input is there. Passes of one wavefront depend on earlier
ones only, so one wavefront is a few operations on [passes, layouts] arrays.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sim.parallel.exchange import Style
from sim.parallel.pipeline import Pass
from sim.parallel.plan import Plan
from sim.parallel.step import passes

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Term = tuple[int, int]  # the node to wait for, and the row of the message behind it
SILENT = 0  # the row of a message that takes no time


@dataclass(frozen=True, slots=True)
class Level:
    """Nodes first to last - 1 of one wavefront, and the moments that each waits for [terms, nodes].

    `before` is the stage's previous node, `blocked` whether an exchange lies between the two. Of n
    nodes, moment i is the end of node i, n + i when it was ready, 2 n + i when stage and host had
    both come behind it.
    """

    first: int
    last: int
    before: Indices
    blocked: NDArray[np.bool_]
    waits: Indices
    messages: Indices


@dataclass(frozen=True, slots=True)
class Wave:
    """A pipeline's passes as nodes, by wavefront; node 0 is the beginning of the step.

    `kind[n]` is the row of a pass's durations: (2 chunk + (phase is B)) stages + stage; behind them
    one row for the ends of stages, which last nothing, and chunk stages + stage for the forward
    passes of the first microbatch, which may have weights to wait for. `last[chunk][stage]` is the
    last backward pass of a chunk, `ends[stage]` the node behind a stage's last exchange.
    """

    stages: int
    chunks: int
    kind: Indices
    levels: tuple[Level, ...]
    last: Indices
    ends: Indices

    def ending(self, device: Floats, host: Floats, lead: Floats, behind: Floats, message: Floats, *,
               opening: float, sync: bool) -> Floats:  # fmt: skip
        """When every node ends, [nodes, layouts].

        `device`, `host`, `lead` and `behind` (the least time since the end of the pass before) are
        [kinds, layouts] and `message` [1 + stages, layouts]: row
        1 + s is a message between stage s and the next. With `sync` the host waits for whatever
        blocks the compute stream.
        """
        nodes, layouts = len(self.kind), device.shape[1]
        moments = np.zeros((3 * nodes, layouts))
        free = np.zeros((nodes, layouts))  # when the host has launched a pass
        free[0] = moments[0] = moments[2 * nodes] = opening
        gathers = bool(behind.any())
        device, host, lead, behind = (row[self.kind] for row in (device, host, lead, behind))
        for level in self.levels:
            here = slice(level.first, level.last)
            ready = (moments[level.waits] + message[level.messages]).max(axis=0)
            launch = free[level.before]
            if sync:
                launch = np.where(level.blocked[:, None], np.maximum(launch, ready), launch)
            end = np.maximum(ready + device[here], launch + lead[here])
            if gathers:
                np.maximum(end, moments[level.before] + behind[here], out=end)
            launch += host[here]
            free[here], moments[here] = launch, end
            moments[nodes + level.first : nodes + level.last] = ready
            np.maximum(end, launch, out=moments[2 * nodes + level.first : 2 * nodes + level.last])
        return moments[:nodes]


def wave(plan: Plan, style: Style) -> Wave:
    """The wavefronts of a plan's pipeline whose stages exchange in this manner."""
    chunks = plan.interleave if plan.interleaved else 1
    schedule = plan.schedule if plan.schedule in ("gpipe", "naive") and plan.pp > 1 else "1f1b"
    return _wave(plan.pp, plan.microbatches, chunks, schedule, style)


@lru_cache(maxsize=32)
def _wave(stages: int, microbatches: int, chunks: int, schedule: str, style: Style) -> Wave:
    shape: dict[str, object] = {"schedule": schedule, "interleave": chunks}
    plan = Plan(pp=stages, dp=1, global_batch=microbatches, **shape)  # type: ignore[arg-type]
    grid = _Grid(passes(plan), stages, microbatches, chunks)
    return _batched(grid) if style == "batched" and chunks == 1 else _streamed(grid, style)


class _Grid:
    """Passes numbered stage by stage in their order, from 1 on; each stage's end is its last node.

    `code` says which pass a node is: ((phase is B) chunks + chunk) microbatches + microbatch.
    """

    def __init__(
        self, order: Sequence[Sequence[Pass]], stages: int, microbatches: int, chunks: int
    ) -> None:
        self.stages, self.microbatches, self.chunks = stages, microbatches, chunks
        row = len(order[0]) + 1
        self.nodes = 1 + stages * row
        self.first = 1 + row * np.arange(stages)
        self.ends = self.first + row - 1
        self.code = np.array(
            [[((one.phase == "B") * chunks + one.chunk) * microbatches + one.microbatch
              for one in passes_] for passes_ in order], dtype=np.intp)  # fmt: skip
        self.place = np.empty((stages, row - 1), dtype=np.intp)  # [stage, code] -> node
        for stage in range(stages):
            self.place[stage, self.code[stage]] = self.first[stage] + np.arange(row - 1)

    def sources(self, stage: int) -> tuple[Indices, Indices]:
        """Per pass of a stage the node that produces its input, and the message between; 0: none.

        The piece of the model before (F) or behind (B) lies on the neighbouring stage, or on the
        other end of the pipeline in the neighbouring chunk.
        """
        return self._neighbours(stage, forward=-1)

    def targets(self, stage: int) -> tuple[Indices, Indices]:
        """Per pass of a stage the node that its output goes to, and the message between."""
        return self._neighbours(stage, forward=1)

    @cached_property
    def before(self) -> Indices:
        """Per node the one before it on its stage; 0 for a stage's first."""
        before = np.maximum(np.arange(self.nodes) - 1, 0)
        before[self.first] = 0
        return before

    def queued(self) -> Iterator[tuple[Indices, Indices]]:
        """Who takes the outputs of a stage, in order, and who takes the one before each."""
        half = self.chunks * self.microbatches
        for stage in range(self.stages):
            target, _ = self.targets(stage)
            for phase in (self.code[stage] < half, self.code[stage] >= half):
                takers = target[phase & (target > 0)]
                yield takers[1:], takers[:-1]

    def _neighbours(self, stage: int, forward: int) -> tuple[Indices, Indices]:
        code, half = self.code[stage], self.chunks * self.microbatches
        nodes, messages = np.zeros_like(code), np.zeros_like(code)
        for mine, step in ((code < half, forward), (code >= half, -forward)):
            there = stage + step
            asked = code[mine]
            found = np.ones(len(asked), dtype=bool)
            if not 0 <= there < self.stages:
                there %= self.stages
                chunk = asked // self.microbatches % self.chunks + step
                found = (chunk >= 0) & (chunk < self.chunks) & (self.stages > 1)
                asked = np.where(found, asked + step * self.microbatches, 0)
            nodes[mine] = np.where(found, self.place[there, asked], 0)
            messages[mine] = np.where(found, self._message(stage, there), SILENT)
        return nodes, messages

    def _message(self, stage: int, other: int) -> int:
        """The row of the message between two neighbours, the last and the first among them."""
        low, high = min(stage, other), max(stage, other)
        return 1 + (high if high - low > 1 else low)


def _streamed(grid: _Grid, style: Style) -> Wave:
    """Messages on streams of their own, or received on the compute stream when needed.

    A send that nobody takes yet keeps those behind it waiting.
    """
    blocks = style != "overlapped"
    before = grid.before
    waits = np.stack([before + 2 * grid.nodes * blocks, before, before])
    messages = np.zeros_like(waits)
    for stage in range(grid.stages):
        passes_ = slice(grid.first[stage], grid.ends[stage])
        source, message = grid.sources(stage)
        waits[1, passes_] = np.where(source > 0, source, before[passes_])
        messages[1, passes_] = message
        messages[0, passes_] = message if blocks else SILENT
    if blocks:
        for taker, earlier in grid.queued():
            waits[2, taker], messages[2, taker] = earlier + grid.nodes, messages[1, taker]
    return _wavefronts(grid, waits, messages, (messages[1] > 0) & blocks)


def _batched(grid: _Grid) -> Wave:
    """After each pass one exchange: its output leaves, the next one's input comes.

    It waits until the sender of the input has run its pass, and until whoever takes the output has
    reached the pass before the one that needs it.
    """
    before, reached = grid.before, 2 * grid.nodes
    waits = np.stack([before, before, before]) + reached
    messages = np.zeros_like(waits)
    for stage in range(grid.stages):
        first, end = grid.first[stage], grid.ends[stage]
        source, message = grid.sources(stage)
        waits[1, first:end] = np.where(source > 0, source, before[first:end]) + reached
        messages[1, first:end] = message
        target, message = grid.targets(stage)
        behind = before[first + 1 : end + 1]
        waits[2, first + 1 : end + 1] = np.where(target > 0, before[target], behind) + reached
        messages[2, first + 1 : end + 1] = message
    messages[0] = np.maximum(messages[1], messages[2])
    return _wavefronts(grid, waits, messages, messages[0] > 0)


def _wavefronts(grid: _Grid, waits: Indices, messages: Indices, blocked: NDArray[np.bool_]) -> Wave:
    """Nodes numbered anew, by the longest chain of nodes before them."""
    depth = np.array(_depths(grid, (waits[1:] % grid.nodes).T.tolist()), dtype=np.intp)
    order = np.argsort(depth, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(grid.nodes)
    before, blocked, messages = place[grid.before[order]], blocked[order], messages[:, order]
    waits = (waits - waits % grid.nodes + place[waits % grid.nodes])[:, order]
    edges = [*(1 + np.flatnonzero(np.diff(depth[order]))).tolist(), grid.nodes]
    levels = tuple(
        Level(a, b, before[a:b], blocked[a:b], waits[:, a:b], messages[:, a:b])
        for a, b in pairwise(edges)
    )
    stages, chunks, microbatches = grid.stages, grid.chunks, grid.microbatches
    backward = grid.place[:, chunks * microbatches :].reshape(stages, chunks, microbatches)
    last = place[backward.max(axis=2).T]
    return Wave(stages=stages, chunks=chunks, kind=_kinds(grid)[order], levels=levels, last=last,
                ends=place[grid.ends])  # fmt: skip


def _kinds(grid: _Grid) -> Indices:
    """Per node the row of its durations, see `Wave`."""
    stages, chunks, microbatches = grid.stages, grid.chunks, grid.microbatches
    kind = np.zeros(grid.nodes, dtype=np.intp)
    for stage in range(stages):
        piece = grid.code[stage] // microbatches  # (phase is B) chunks + chunk
        kind[grid.first[stage] : grid.ends[stage]] = (
            2 * (piece % chunks) + piece // chunks
        ) * stages + stage
        first = grid.place[stage, np.arange(chunks) * microbatches]
        kind[first] = 2 * chunks * stages + 1 + np.arange(chunks) * stages + stage
    kind[grid.ends] = 2 * chunks * stages
    return kind


def _depths(grid: _Grid, causes: list[list[int]]) -> list[int]:
    """Per node the longest chain before it: stages advance until they wait for one another."""
    depth = [-1] * grid.nodes
    depth[0] = 0
    ends = grid.ends.tolist()
    at = grid.first.tolist()
    waiting: dict[int, list[int]] = {}
    ready = list(range(grid.stages))
    while ready:
        stage = ready.pop()
        node, end = at[stage], ends[stage]
        height = depth[node - 1] if node != grid.first[stage] else 0
        while node <= end:
            for cause in causes[node]:
                there = depth[cause]
                if there < 0 and cause != node - 1:
                    waiting.setdefault(cause, []).append(stage)
                    break
                height = max(height, there)
            else:
                height = depth[node] = height + 1
                ready += waiting.pop(node, ())
                node += 1
                continue
            break
        at[stage] = node
    return depth
