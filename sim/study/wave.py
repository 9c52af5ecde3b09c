"""A pipeline of passes as wavefronts of maxima and sums, for many layouts of one shape at once.

Layouts with the same schedule, stages, microbatches and chunks differ only in what their passes
and messages last. A pass ends at max(ready + device, host + lead) (see `sim.program.Segment`); it
is ready when its stage is free and its input is there. Passes of one wavefront depend on earlier
ones only, so one wavefront is a few operations on [passes, layouts] arrays.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

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
    """Nodes of one wavefront, and for each the terms that it waits for: [terms, nodes].

    `before` is the stage's previous node, `blocked` whether an exchange lies between the two.
    """

    nodes: Indices
    before: Indices
    blocked: NDArray[np.bool_]
    waits: Indices
    messages: Indices


@dataclass(frozen=True, slots=True)
class Wave:
    """A pipeline's passes as nodes; node 0 is the beginning of the step.

    `kind[n]` is the row of a pass's durations: (2 chunk + (phase is B)) stages + stage, and one
    row more for the ends of stages, which last nothing. `last[chunk][stage]` is the last backward
    pass of a chunk, `ends[stage]` the node behind a stage's last exchange.
    """

    stages: int
    chunks: int
    kind: Indices
    levels: tuple[Level, ...]
    last: Indices
    ends: Indices

    def ending(self, device: Floats, host: Floats, lead: Floats, message: Floats, *, opening: float,
               sync: bool) -> Floats:  # fmt: skip
        """When every node ends, [nodes, layouts].

        `device`, `host` and `lead` are [kinds, layouts] and `message` [1 + stages, layouts]: row
        1 + s is a message between stage s and the next. With `sync` the host waits for whatever
        blocks the compute stream.
        """
        layouts = device.shape[1]
        ends = np.zeros((len(self.kind), layouts))
        free = np.zeros_like(ends)  # when the host has launched a pass
        ends[0] = free[0] = opening
        for level in self.levels:
            ready = (ends[level.waits] + message[level.messages]).max(axis=0)
            launch = free[level.before]
            if sync:
                launch = np.where(level.blocked[:, None], np.maximum(launch, ready), launch)
            kind = self.kind[level.nodes]
            ends[level.nodes] = np.maximum(ready + device[kind], launch + lead[kind])
            free[level.nodes] = launch + host[kind]
        return ends


def wave(plan: Plan, style: Style) -> Wave:
    """The wavefronts of a plan's pipeline whose stages exchange in this manner."""
    chunks = plan.interleave if plan.interleaved else 1
    schedule = plan.schedule if plan.schedule in ("gpipe", "naive") and plan.pp > 1 else "1f1b"
    return _wave(plan.pp, plan.microbatches, chunks, schedule, style)


@lru_cache(maxsize=32)
def _wave(stages: int, microbatches: int, chunks: int, schedule: str, style: Style) -> Wave:
    shape: dict[str, object] = {"schedule": schedule, "interleave": chunks}
    plan = Plan(pp=stages, dp=1, global_batch=microbatches, **shape)  # type: ignore[arg-type]
    builder = _Builder(passes(plan), stages, chunks)
    return builder.batched() if style == "batched" and chunks == 1 else builder.streamed(style)


class _Builder:
    def __init__(self, order: Sequence[Sequence[Pass]], stages: int, chunks: int) -> None:
        self.order, self.stages, self.chunks = order, stages, chunks
        self.node: dict[tuple[int, Pass], int] = {}
        for stage, row in enumerate(order):
            for one in row:
                self.node[stage, one] = len(self.node) + 1
        self.ends = [len(self.node) + 1 + stage for stage in range(stages)]
        self.terms: list[list[Term]] = [[] for _ in range(len(self.node) + stages + 1)]
        self.before = [0] * len(self.terms)
        self.blocked = [False] * len(self.terms)

    def streamed(self, style: Style) -> Wave:
        """Messages on streams of their own, or received on the compute stream when needed."""
        blocks = style != "overlapped"
        for stage, row in enumerate(self.order):
            previous = 0
            for one in row:
                node = self.node[stage, one]
                source = self._source(stage, one)
                message = self._message(stage, source[0]) if source else SILENT
                self.terms[node].append((previous, message if blocks else SILENT))
                if source:
                    self.terms[node].append((self.node[source], message))
                    self.blocked[node] = blocks
                self.before[node], previous = previous, node
            self._end(stage, previous)
        return self._wave()

    def batched(self) -> Wave:
        """After each pass one exchange: its output leaves, the next one's input comes."""
        for stage, row in enumerate(self.order):
            previous = 0
            for number, one in enumerate([*row, None]):
                node = self.node[stage, one] if one else self.ends[stage]
                terms = self._exchange(stage, row[number - 1] if number else None, one)
                own = max((message for _, message in terms), default=SILENT)
                self.terms[node] = [(previous, own), *terms]
                self.blocked[node] = bool(terms)
                self.before[node] = previous
                previous = node
        return self._wave()

    def _exchange(self, stage: int, sent: Pass | None, received: Pass | None) -> list[Term]:
        """What others must have reached: senders their pass, receivers what precedes theirs."""
        terms = []
        target = self._target(stage, sent) if sent else None
        if target is not None:
            peer, one = target
            there = self.node[peer, one]
            reached = there - 1 if one != self.order[peer][0] else 0
            terms.append((reached, self._message(stage, peer)))
        source = self._source(stage, received) if received else None
        if source is not None:
            terms.append((self.node[source], self._message(stage, source[0])))
        return terms

    def _message(self, stage: int, other: int) -> int:
        """The row of the message between two neighbours, the last and the first among them."""
        low, high = min(stage, other), max(stage, other)
        return 1 + (high if low == 0 and high == self.stages - 1 and high > 1 else low)

    def _source(self, stage: int, one: Pass) -> tuple[int, Pass] | None:
        return self._neighbour(stage, one, -1 if one.phase == "F" else 1)

    def _target(self, stage: int, one: Pass) -> tuple[int, Pass] | None:
        return self._neighbour(stage, one, 1 if one.phase == "F" else -1)

    def _neighbour(self, stage: int, one: Pass, step: int) -> tuple[int, Pass] | None:
        """The pass of the same microbatch through the piece of the model before or behind."""
        piece = one.chunk * self.stages + stage + step
        if self.stages == 1 or not 0 <= piece < self.stages * self.chunks:
            return None
        chunk, there = divmod(piece, self.stages)
        return there, one._replace(chunk=chunk)

    def _end(self, stage: int, previous: int) -> None:
        self.terms[self.ends[stage]].append((previous, SILENT))
        self.before[self.ends[stage]] = previous

    def _wave(self) -> Wave:
        kinds = [0] * len(self.terms)
        last = np.zeros((self.chunks, self.stages), dtype=np.intp)
        for (stage, one), node in self.node.items():
            kinds[node] = (2 * one.chunk + (one.phase == "B")) * self.stages + stage
            if one.phase == "B":
                last[one.chunk, stage] = max(last[one.chunk, stage], node)
        for node in self.ends:
            kinds[node] = 2 * self.chunks * self.stages
        return Wave(
            stages=self.stages,
            chunks=self.chunks,
            kind=np.array(kinds, dtype=np.intp),
            levels=tuple(map(self._level, self._wavefronts())),
            last=last,
            ends=np.array(self.ends, dtype=np.intp),
        )

    def _wavefronts(self) -> list[list[int]]:
        """Nodes by the longest chain of nodes before them."""
        waiting = [len(terms) for terms in self.terms]
        behind: list[list[int]] = [[] for _ in self.terms]
        for node, terms in enumerate(self.terms):
            for cause, _ in terms:
                behind[cause].append(node)
        ready, fronts = [0], list[list[int]]()
        while ready:
            fronts.append(ready)
            following = []
            for cause in ready:
                for node in behind[cause]:
                    waiting[node] -= 1
                    if waiting[node] == 0:
                        following.append(node)
            ready = following
        return fronts[1:]

    def _level(self, nodes: list[int]) -> Level:
        most = max(len(self.terms[node]) for node in nodes)
        padded = [self.terms[n] + self.terms[n][:1] * (most - len(self.terms[n])) for n in nodes]
        table = np.array(padded, dtype=np.intp)
        return Level(
            np.array(nodes, dtype=np.intp),
            np.array([self.before[node] for node in nodes], dtype=np.intp),
            np.array([self.blocked[node] for node in nodes]),
            np.ascontiguousarray(table[:, :, 0].T),
            np.ascontiguousarray(table[:, :, 1].T),
        )
