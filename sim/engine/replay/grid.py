"""The passes of a schedule as numbered nodes, with arrays that tell what each pass waits for.

Nodes are numbered stage by stage, in the order of their passes. The schedule and the style in which
stages exchange messages (`sim.program.program.Exchange`) determine what a pass waits for. Its input
arrives at the latest of some moments of other nodes, each plus the seconds of a message.
"""

from collections.abc import Iterator
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from sim.config.dataclass import dataclass
from sim.program.program import Style
from sim.program.schedule import PassVariant, Schedule

Indices = NDArray[np.int64]

# Moments of a node, in this order: when it ends; when its input has arrived; when both stage and
# host have finished it; when the host is free; when each side stream is free; and, if an operation
# waits for this moment, when the computation before the last one ended.
END, ARRIVAL, REACHED, HOST_FREE = range(4)
FIRST_SIDE = 4
NOTHING = -1  # no such node, no message


@dataclass(frozen=True, eq=False)
class Grid:
    """Passes as nodes; each stage's end is a node, too, after its last pass.

    `before` is the node before each node on its stage, `kind` the node's row among `kinds` (stage
    and variant; `NOTHING` for ends). The input of a node waits for a few terms, which are the rows
    of `moments`, `nodes` and `messages` [terms, nodes]. Each term is a moment of another node and
    the message that follows it, or `NOTHING`. Messages are numbered as in `pairs` (from, to).
    """

    schedule: Schedule
    stage: Indices
    before: Indices
    kind: Indices
    kinds: tuple[tuple[int, PassVariant], ...]
    pairs: tuple[tuple[int, int], ...]
    moments: Indices
    nodes: Indices
    messages: Indices
    way: Indices
    source: Indices
    target: Indices
    received: Indices
    ends: Indices
    style: Style

    @property
    def size(self) -> int:
        return len(self.before)

    @property
    def blocking(self) -> bool:
        """Whether receiving blocks the compute stream."""
        return self.style != "overlapped"

    @property
    def batched(self) -> bool:
        """Whether sends and receipts between two passes are one exchange."""
        return self.style == "batched"

    @cached_property
    def depth(self) -> Indices:
        """The length of the longest chain of nodes before each node; negative in a deadlock."""
        return np.array(_depths(self), dtype=np.int64)

    @cached_property
    def deadlocks(self) -> bool:
        """Whether passes wait for one another in a circle."""
        return bool((self.depth < 0).any())


@lru_cache(maxsize=256)
def grid_of(schedule: Schedule, style: Style) -> Grid:
    """The grid of a schedule whose stages exchange messages in this style."""
    return _GridBuilder(schedule, style).grid()


class _GridBuilder:
    def __init__(self, schedule: Schedule, style: Style) -> None:
        self.schedule, self.style = schedule, style
        lengths = [len(order) for order in schedule.orders]
        self.first = np.concatenate(([0], np.cumsum([length + 1 for length in lengths])[:-1]))
        self.ends = self.first + np.array(lengths)
        self.size = int(self.ends[-1]) + 1
        self.stage = np.repeat(np.arange(schedule.stages), np.array(lengths) + 1)
        self.before = np.arange(self.size) - 1
        self.before[self.first] = NOTHING
        self._read()

    def _read(self) -> None:
        """Set kind, direction, microbatch and piece of every node."""
        self.kind = np.full(self.size, NOTHING, dtype=np.int64)
        self.way = np.full(self.size, NOTHING, dtype=np.int64)  # 0 forward, 1 backward
        self.microbatch = np.zeros(self.size, dtype=np.int64)
        self.piece = np.zeros(self.size, dtype=np.int64)
        kinds: list[tuple[int, PassVariant]] = []
        stages = zip(self.schedule.actions, self.schedule.pieces, strict=True)
        for stage, (actions, pieces) in enumerate(stages):
            here = slice(self.first[stage], self.ends[stage])
            self.kind[here] = len(kinds) + actions.rows
            self.way[here] = _way(actions.kinds)
            self.microbatch[here] = actions.microbatches
            self.piece[here] = np.array(pieces)[actions.chunks]
            kinds += [(stage, variant) for variant in actions.variants]
        self.kinds = tuple(kinds)

    def grid(self) -> Grid:
        """The grid, with all nodes and the moments for which they wait."""
        source, target = self._neighbours(-1), self._neighbours(1)
        pairs = dict.fromkeys(
            pair
            for (here, _), (there, _) in self.schedule.borders()
            if here != there
            for pair in ((here, there), (there, here))
        )
        rows = np.full((self.schedule.stages, self.schedule.stages), NOTHING, dtype=np.int64)
        for number, pair in enumerate(pairs):
            rows[pair] = number
        received = self._message(rows, source, self.stage)
        terms = (
            self._batched(rows, source, target, received)
            if self.style == "batched"
            else self._streamed(source, target, received)
        )
        moments, nodes, messages = (np.stack(column) for column in zip(*terms, strict=True))
        return Grid(
            schedule=self.schedule,
            stage=self.stage,
            before=self.before,
            kind=self.kind,
            kinds=self.kinds,
            pairs=tuple(pairs),
            moments=moments,
            nodes=nodes,
            messages=messages,
            way=self.way,
            source=source,
            target=target,
            received=received,
            ends=self.ends,
            style=self.style,
        )

    def _message(self, rows: Indices, source: Indices, target_stage: Indices) -> Indices:
        """The row of the message from each source node to a stage."""
        return np.where(source >= 0, rows[self.stage[source], target_stage], NOTHING)

    def _neighbours(self, forward: int) -> Indices:
        """For each node, the node on another stage before (`forward` = -1) or after it (1)."""
        pieces = self.schedule.cuts
        most = int(self.microbatch.max(initial=0)) + 1
        place = np.full((2, pieces, most), NOTHING, dtype=np.int64)
        passes = self.way >= 0
        place[self.way[passes], self.piece[passes], self.microbatch[passes]] = np.flatnonzero(
            passes
        )
        piece = self.piece + np.where(self.way == 0, forward, -forward)
        inside = passes & (piece >= 0) & (piece < pieces)
        nodes_found = np.full(self.size, NOTHING, dtype=np.int64)
        nodes_found[inside] = place[self.way[inside], piece[inside], self.microbatch[inside]]
        away = (nodes_found >= 0) & (self.stage[nodes_found] != self.stage)
        return np.where(away, nodes_found, NOTHING)

    def _streamed(
        self, source: Indices, target: Indices, message: Indices
    ) -> Iterator[tuple[Indices, Indices, Indices]]:
        """Yield the terms of messages that are sent on streams of their own. A message that its
        receiver does not take yet delays the later messages of its stream.

        In the style "overlapped" receipts have streams, too, and a receipt delays the later
        receipts of its stream. In other styles a receipt waits until its stage and host reach it.
        """
        received = source >= 0
        yield self._term(END, source, message)
        yield self._term(ARRIVAL, self._queued(target, self.stage[target]), message)
        if self.style == "overlapped":
            sources = np.where(received, np.arange(self.size), NOTHING)
            yield self._term(ARRIVAL, self._queued(sources, self.stage[source]), message)
        else:
            yield self._term(REACHED, np.where(received, self.before, NOTHING), message, received)

    def _queued(self, takers: Indices, peers: Indices) -> Indices:
        """For each node in `takers`: the node that takes the previous message of the same stream.

        `takers` gives the node that takes each node's message, or `NOTHING`. `peers` gives the
        stage with which the message is exchanged. Each stage, direction and peer has a stream.
        """
        before = np.full(self.size, NOTHING, dtype=np.int64)
        asked = np.flatnonzero(takers >= 0)
        ways = self.stage[asked] * 2 + self.way[asked]
        keys = ways * self.schedule.stages + peers[asked]
        order = np.argsort(keys, kind="stable")
        row, same = takers[asked][order], np.diff(keys[order]) == 0
        before[row[1:][same]] = row[:-1][same]
        return before

    def _batched(
        self, rows: Indices, source: Indices, target: Indices, received: Indices
    ) -> Iterator[tuple[Indices, Indices, Indices]]:
        """Yield the terms of batched exchanges. After each pass, one exchange sends its output and
        receives the next pass's input.

        The exchange waits until the sender of the input has run its pass. It also waits until the
        receiver of the output has run the pass before the pass that needs it.
        """
        sent_by = np.where(self.before >= 0, target[self.before], NOTHING)
        sent = np.where(sent_by >= 0, rows[self.stage, self.stage[sent_by]], NOTHING)
        taking = sent_by >= 0
        yield self._term(REACHED, self.before, received, source >= 0)
        yield self._term(REACHED, source, received)
        yield self._term(REACHED, np.where(taking, self.before, NOTHING), sent, taking)
        yield self._term(REACHED, np.where(taking, self.before[sent_by], NOTHING), sent, taking)

    def _term(
        self,
        moment: int,
        nodes: Indices,
        messages: Indices,
        asked: NDArray[np.bool_] | None = None,
    ) -> tuple[Indices, Indices, Indices]:
        """A term: each node waits for this `moment` of a node in `nodes` and then for a message.

        `asked` marks the nodes that have the term (by default: nodes with an entry in `nodes`). A
        marked node without such an entry waits for the opening of its stage, node number `size`.
        """
        there = nodes >= 0 if asked is None else asked
        opening = self.size if asked is not None else NOTHING
        at = np.where(there, np.where(nodes >= 0, nodes, opening), NOTHING)
        return (
            np.full(self.size, moment, dtype=np.int64),
            at,
            np.where(there, messages, NOTHING),
        )


def _way(kinds: NDArray[np.str_]) -> Indices:
    """0 for forward passes, 1 for backward passes, `NOTHING` for passes of kind W."""
    way: Indices = np.select([kinds == "F", kinds == "W"], [0, NOTHING], 1)
    return way


def _depths(grid: Grid) -> list[int]:
    """The length of the longest chain before each node; stages advance until they have to wait."""
    unknown, nothing = -2, -1  # after all nodes come the opening and a node for `NOTHING`
    depth = [unknown] * grid.size + [nothing, nothing]
    causes = list(zip(*grid.nodes.tolist(), strict=True))
    ends = grid.ends.tolist()
    places = [0, *(end + 1 for end in ends[:-1])]
    heights = [nothing] * len(ends)
    waiting: dict[int, list[int]] = {}
    ready = list(range(len(ends)))
    while ready:
        stage = ready.pop()
        height = heights[stage]
        for node in range(places[stage], ends[stage] + 1):
            for cause in causes[node]:
                before = depth[cause]
                if before > height:
                    height = before
                elif before == unknown and cause != node - 1:
                    break
            else:
                height = depth[node] = height + 1
                if node in waiting:
                    ready += waiting.pop(node)
                continue
            waiting.setdefault(cause, []).append(stage)
            places[stage], heights[stage] = node, height
            break
    return depth[: grid.size]
