"""A folded program as a contracted graph of (max, +), evaluated level by level.

Every moment of a step is a maximum of terms (node, weight): the value of a node plus a sum of
durations. A moment with a single term needs no node of its own, so chains vanish; a term that can
never be the largest is dropped. About one node per pass is left. Nodes are numbered by level (the
length of the longest chain of nodes before them). So a level is a few operations on contiguous
arrays: gather, add, maximum (Baccelli et al. 1992, Synchronization and Linearity, 2.5).
"""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.engine.columns.shape import Shape
from sim.engine.columns.weights import NOTHING, Floats, Table, Weights
from sim.engine.folded import CommunicateStep, ComputeStep, Step
from sim.program.operations import COMPUTE_STREAM

Term = tuple[int, int]  # node, row of its weight
Moment = tuple[Term, ...]  # the largest of its terms

ZERO: Moment = ((0, NOTHING),)
_DEPTH = 4  # nodes to look back for a longer path


@dataclass(frozen=True, slots=True)
class Terms:
    """Moments in three arrays; moment i has the terms from starts[i] on."""

    nodes: NDArray[np.intp]
    rows: NDArray[np.intp]
    starts: NDArray[np.intp]

    def at(self, times: Floats, rows: Floats) -> Floats:
        """The values of the moments (s), given the values of nodes and rows of weights."""
        return np.maximum.reduceat(times[self.nodes] + rows[self.rows], self.starts, axis=0)


@dataclass(frozen=True, slots=True)
class Level:
    """Nodes first to last - 1, each the maximum over k of times[nodes[k]] + rows[weights[k]].

    Replicas meet at the nodes before `meeting`. The other nodes follow, nodes with more terms
    first. A node with fewer terms than the level's largest repeats its first term.
    """

    first: int
    meeting: int
    last: int
    nodes: NDArray[np.intp]
    weights: NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Graph:
    """The reduced graph of a program; `end` is the moment when the last step ends."""

    levels: tuple[Level, ...]
    nodes: int
    table: Table
    end: Terms


def graph_of(shape: Shape, low: Floats, high: Floats, joint: frozenset[int] = frozenset()) -> Graph:
    """The graph of a shape, valid while its parameters stay within `low` and `high`.

    The starts of the transfers in `joint` stay nodes, since replicas meet there. Raises
    `InputError` if roles wait for each other in a circle.
    """
    builder = _GraphBuilder(shape, low, high, joint)
    builder.run()
    return builder.graph()


class _GraphBuilder:
    def __init__(self, shape: Shape, low: Floats, high: Floats, joint: frozenset[int]) -> None:
        self.shape, self.joint = shape, joint
        self.weights = Weights(low, high)
        self.before: list[Moment] = [()]
        self.floor = [0.0]
        self.meeting: set[int] = set()
        program = shape.program
        self.host: list[Moment] = [ZERO for _ in program.roles]
        self.ended: list[dict[int, Moment]] = [{} for _ in program.roles]
        self.missing = [transfer.arity for transfer in program.transfers]
        self.joins: list[list[Term]] = [[] for _ in program.transfers]
        self.done: list[Moment] = [() for _ in program.transfers]
        self._last: list[Moment] = []
        self._waiting: dict[object, list[Iterator[object]]] = {}
        self._ready: deque[Iterator[object]] = deque()

    # --- Playing without a clock -----------------------------------------------------------------

    def run(self) -> None:
        """Play every stream until it waits for an event, as long as any stream can go on."""
        for number, part in enumerate(self.shape.program.roles):
            for stream, steps in part.streams.items():
                self._ready.append(self._stream(number, stream, steps))
        left = len(self._ready)
        while self._ready:
            playing = self._ready.popleft()
            cause = next(playing, None)
            if cause is None:
                left -= 1
            else:
                self._waiting.setdefault(cause, []).append(playing)
        if left:
            raise InputError("plan", "ranks wait for each other forever", "check the schedule")

    def _stream(self, part: int, stream: str, steps: list[Step]) -> Iterator[object]:
        """Play one stream like `RoleProcess`; yield the steps and transfers for which it waits."""
        ended, clock = self.ended[part], ZERO
        for step in steps:
            for cause in step.after:
                if cause not in ended:
                    yield part, cause
            ready = self.latest(clock, *(ended[cause] for cause in step.after))
            if isinstance(step, ComputeStep):
                clock = self._pass(part, step, ready)
            else:
                yield from self._meet(part, step, ready, stream)
                clock = self._met(part, step, ready)
            ended[step.index] = clock
            self._wake((part, step.index))
        self._last.append(clock)

    def _pass(self, part: int, step: ComputeStep, ready: Moment) -> Moment:
        first = self.shape.compute_parameter(self.shape.class_of_computation[part, step.index])
        host, wait = self.host[part], step.cost.duration.waits
        if step.joins:
            ready = self.latest(ready, host)
            self._join(step.joins, ready)
        device = self.later(ready, first)
        launched = self.later(self.later(host, first), first + 2)
        end = self.named(self.latest(device, launched))
        free = self.later(host, first + 1)
        if wait:
            free = self.named(self.latest(free, self.later(device, first + 3)))
        self.host[part] = end if step.sync else free
        return end

    def _meet(
        self, part: int, step: CommunicateStep, ready: Moment, stream: str
    ) -> Iterator[object]:
        if not step.joined:
            at = self.latest(ready, self.host[part]) if stream == COMPUTE_STREAM else ready
            self._join(step.transfers, at)
            if not step.transfers:
                self.ended[part][-1 - step.index] = at
        for number in step.transfers:
            if not self.done[number]:
                yield number

    def _met(self, part: int, step: CommunicateStep, ready: Moment) -> Moment:
        ends = [self.done[number] for number in step.transfers]
        if step.joined:
            ends.append(ready)
        elif not ends:
            ends.append(self.ended[part].pop(-1 - step.index))
        end = self.named(self.latest(*ends), most=2)
        if step.sync:
            self.host[part] = self.latest(self.host[part], end)
        return end

    def _join(self, transfers: Iterable[int], at: Moment) -> None:
        for number in transfers:
            self.joins[number].extend(at)
            self.missing[number] -= 1
            if self.missing[number] == 0:
                self._begin(number)

    def _begin(self, number: int) -> None:
        start = self.latest(tuple(self.joins[number]))
        if number in self.joint:
            start = self.named(start, most=0)
            self.meeting.add(start[0][0])
        first = self.shape.transfer_parameter(self.shape.class_of_transfer[number])
        self.done[number] = self.named(self.later(self.later(start, first), first + 1))
        self._wake(number)

    def _wake(self, cause: object) -> None:
        self._ready.extend(self._waiting.pop(cause, ()))

    # --- Moments ---------------------------------------------------------------------------------

    def later(self, moment: Moment, parameter: int) -> Moment:
        plus = self.weights.plus
        return tuple((node, plus(row, parameter)) for node, row in moment)

    def latest(self, *moments: Moment) -> Moment:
        """The maximum of moments, without terms that can never be the largest."""
        kept: list[Term] = []
        for moment in moments:
            for term in moment:
                if not any(self.covers(other, term) for other in kept):
                    kept = [other for other in kept if not self.covers(term, other)]
                    kept.append(term)
        return tuple(kept)

    def covers(self, larger: Term, smaller: Term, depth: int = _DEPTH) -> bool:
        """Whether one term is surely at least the other, because of a longer path of weights."""
        (node, row), (other, least) = larger, smaller
        if node == other:
            return self.weights.surely(row, least)
        if other > node:
            return False
        if other == 0:
            return self.floor[node] + self.weights.low[row] >= self.weights.high[least]
        return depth > 0 and any(
            before >= other
            and before > 0
            and self.covers((before, self.weights.both(weight, row)), smaller, depth - 1)
            for before, weight in self.before[node]
        )

    def named(self, moment: Moment, most: int = 1) -> Moment:
        """Turn a moment with more than `most` terms into a node, and return the moment."""
        if len(moment) <= most:
            return moment
        self.before.append(moment)
        self.floor.append(max(self.floor[n] + self.weights.low[row] for n, row in moment))
        return ((len(self.before) - 1, NOTHING),)

    # --- The finished graph ----------------------------------------------------------------------

    def graph(self) -> Graph:
        end = self.latest(*self._last)
        order, bounds = self._levels()
        place = np.empty(len(self.before), dtype=np.intp)
        place[order] = np.arange(len(order))
        table, rows = self._table({row for terms in (*self.before, end) for _, row in terms})
        return Graph(
            levels=tuple(self._level(first, last, order, place, rows) for first, last in bounds),
            nodes=len(self.before),
            table=table,
            end=_flat([end], place, rows),
        )

    def _table(self, used: Iterable[int]) -> tuple[Table, NDArray[np.intp]]:
        """A table of the used rows, and the place of each row in the table."""
        listed = sorted(used)
        table = self.weights.table(listed)
        rows = np.full(len(self.weights.sums), -1, dtype=np.intp)
        rows[listed] = table.place
        return table, rows

    def _levels(self) -> tuple[NDArray[np.intp], list[tuple[int, int]]]:
        """The nodes sorted by level, and the bounds of each level. Within a level, nodes at which
        replicas meet come first; then nodes with more terms come before nodes with fewer."""
        level = [0] * len(self.before)
        for node, terms in enumerate(self.before):
            if node:
                level[node] = 1 + max(level[before] for before, _ in terms)
        apart = [node not in self.meeting for node in range(len(level))]
        fewer = [-len(terms) for terms in self.before]
        order = np.lexsort(np.array((range(len(level)), fewer, apart, level)))
        heights = np.array(level)[order]
        bounds = np.flatnonzero(np.diff(heights)) + 1
        edges = [*bounds.tolist(), len(order)]
        return order, list(pairwise(edges))

    def _level(
        self,
        first: int,
        last: int,
        order: NDArray[np.intp],
        place: NDArray[np.intp],
        rows: NDArray[np.intp],
    ) -> Level:
        terms = [self.before[node] for node in order[first:last].tolist()]
        most = max(map(len, terms))
        padded = [term + (term[0],) * (most - len(term)) for term in terms]
        table = np.array(padded, dtype=np.intp).reshape(len(terms), most, 2)
        nodes = np.ascontiguousarray(place[table[:, :, 0]].T)
        weights = np.ascontiguousarray(rows[table[:, :, 1]].T)
        meeting = first + sum(node in self.meeting for node in order[first:last].tolist())
        return Level(first, meeting, last, nodes, weights)


def _flat(moments: list[Moment], place: NDArray[np.intp], rows: NDArray[np.intp]) -> Terms:
    """Moments as arrays; `place` and `rows` map nodes and rows to their final numbers."""
    terms = [term for moment in moments for term in moment]
    table = np.array(terms, dtype=np.intp).reshape(len(terms), 2)
    lengths = np.array([len(moment) for moment in moments], dtype=np.intp)
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1])).astype(np.intp)
    return Terms(place[table[:, 0]], rows[table[:, 1]], starts[: len(moments)])
