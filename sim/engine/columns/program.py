"""A folded program as a graph of (max, +) instead of a clock, for thousands of columns.

A static program in which no two transfers share a link at the same time is a graph of maxima and
sums; the graph's step time equals the clock's to 1e-9. The graph is compiled once per shape (which
step waits for which) and kept; durations are columns. If transfers do share links, a run on the
clock tells how much each transfer is slowed (`sim.engine.columns.contention`). Columns are then an
approximation.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sim.config.dataclass import dataclass
from sim.engine.columns.graph import Graph, Level, graph_of
from sim.engine.columns.shape import Shape, shape_of
from sim.engine.columns.weights import Floats
from sim.engine.folded import FoldedProgram

_MARGIN = 2.0  # a graph holds for durations from half to twice the durations it was made for
_KEPT = 64  # graphs in the cache
_CHUNK = 256  # columns at a time: their values stay in the processor's cache

_graphs: OrderedDict[tuple[bytes, frozenset[int]], "Compiled"] = OrderedDict()


@dataclass(frozen=True, slots=True)
class Compiled:
    """A graph and the bounds of the durations that it holds for."""

    graph: Graph
    low: Floats
    high: Floats

    def holds(self, parameters: Floats) -> bool:
        low, high = (self.low, self.high) if parameters.ndim == 1 else (
            self.low[:, None], self.high[:, None])  # fmt: skip
        return bool(np.all(parameters >= low) and np.all(parameters <= high))


class ColumnProgram:
    """A compiled program. `factors` say how many times as long contended transfers take, `longer`
    how many seconds longer disturbed computations take (`sim.engine.columns.shape.shape_of`).

    `joint` are the transfers at which the columns of a group meet, see `times`.
    """

    def __init__(
        self,
        program: FoldedProgram,
        *,
        factors: Mapping[int, float] | None = None,
        longer: Mapping[tuple[int, int], float] | None = None,
        joint: frozenset[int] = frozenset(),
    ) -> None:
        self.shape: Shape = shape_of(program, factors, longer)
        self.parameters = self.shape.parameters
        self.joint = joint
        self._space = _Space()
        self._single: tuple[Compiled, Callable[[Floats], Floats]] | None = None

    @property
    def compiled(self) -> Compiled:
        return self.compiled_for(self.parameters)

    def compiled_for(self, parameters: Floats) -> Compiled:
        """A graph that holds for these durations."""
        return _compiled(self.shape, self.joint, parameters)

    def values(self, compiled: Compiled) -> Floats:
        """The values of a graph's nodes (s) for the program's own durations."""
        return _single(compiled.graph)(compiled.graph.table.values(self.parameters))

    def time(self, parameters: Floats | None = None) -> float:
        """The step time (s) of one column of durations, by default the program's own."""
        durations = self.parameters if parameters is None else parameters
        compiled = _compiled(self.shape, self.joint, durations)
        if self._single is None or self._single[0] is not compiled:
            self._single = compiled, _single(compiled.graph)
        rows = compiled.graph.table.values(durations)
        return float(compiled.graph.end.at(self._single[1](rows), rows)[0])

    def times(self, parameters: Floats, *, group: int = 1) -> Floats:
        """The step times (s) of many columns [parameters, columns].

        With `group` > 1, every `group` neighbouring columns are replicas of one job that meet at
        the transfers in `joint`. The result still has one step time per column.
        """
        compiled = _compiled(self.shape, self.joint, parameters)
        wide = max(group, _CHUNK // group * group)
        ends = np.empty(parameters.shape[1])
        for first in range(0, parameters.shape[1], wide):
            columns = slice(first, first + wide)
            rows = compiled.graph.table.values(parameters[:, columns])
            values = _propagated(compiled.graph, rows, group, self._space)
            ends[columns] = compiled.graph.end.at(values, rows)[0]
        return ends


def _compiled(shape: Shape, joint: frozenset[int], parameters: Floats) -> Compiled:
    """A graph that holds for these durations, from the cache if it has one."""
    key = (shape.key, joint)
    known = _graphs.get(key)
    if known is not None and known.holds(parameters):
        _graphs.move_to_end(key)
        return known
    columns = parameters if parameters.ndim == 2 else parameters[:, None]
    lowest, highest = columns.min(axis=1), columns.max(axis=1)
    low = np.minimum(lowest / _MARGIN, lowest * _MARGIN)  # lead - device may be negative
    high = np.maximum(highest * _MARGIN, highest / _MARGIN)
    if known is not None:
        low, high = np.minimum(low, known.low), np.maximum(high, known.high)
    made = _graphs[key] = Compiled(graph_of(shape, low, high, joint), low, high)
    while len(_graphs) > _KEPT:
        _graphs.popitem(last=False)
    return made


def _single(graph: Graph) -> Callable[[Floats], Floats]:
    """A function that computes nodes' values from rows' values, for one column, in ready arrays."""
    values = np.zeros(graph.nodes)
    sizes = [level.nodes.size for level in graph.levels]
    bounds = np.cumsum([0, *sizes])
    nothing = np.empty(0, dtype=np.intp)
    spread = np.concatenate([nothing, *(level.weights.ravel() for level in graph.levels)])
    weights, take, add = np.empty(len(spread)), values.take, np.add
    steps: list[tuple[Any, ...]] = []
    for level, start, stop in zip(graph.levels, bounds, bounds[1:], strict=False):
        buffer = np.empty(level.nodes.shape)
        steps.append((level.nodes, buffer, weights[start:stop].reshape(buffer.shape),
                      buffer[0], buffer[1:], values[level.first : level.last]))  # fmt: skip

    def run(rows: Floats) -> Floats:
        rows.take(spread, None, weights, "clip")
        maximum = np.maximum
        for nodes, buffer, weight, first, others, out in steps:
            take(nodes, None, buffer, "clip")
            add(buffer, weight, buffer)
            if len(others) == 1:
                maximum(first, others[0], out=out)
            else:
                maximum.reduce(buffer, 0, None, out)
        return values

    return run


class _Space:
    """Arrays for one chunk of columns, reused for all chunks of equal width."""

    def __init__(self) -> None:
        self.shape = (-1, -1)
        self.values = self.terms = self.weights = np.empty((0, 0))

    def fit(self, graph: Graph, columns: int) -> None:
        if self.shape != (graph.nodes, columns):
            most = max((level.nodes.size for level in graph.levels), default=0)
            self.shape = graph.nodes, columns
            self.values = np.zeros((graph.nodes, columns))
            self.terms, self.weights = np.empty((2, most, columns))


def _propagated(graph: Graph, rows: Floats, group: int, space: _Space) -> Floats:
    """The values of all nodes for many columns."""
    space.fit(graph, rows.shape[1])
    for level in graph.levels:
        _advance(level, space, rows)
        if group > 1 and level.meeting > level.first:
            met = space.values[level.first : level.meeting]
            met = met.reshape(len(met), -1, group)
            met[:] = met.max(axis=2, keepdims=True)
    return space.values


def _advance(level: Level, space: _Space, rows: Floats) -> None:
    values, size, wide = space.values, level.nodes.size, level.last - level.first
    terms, weights = space.terms[:size], space.weights[:size]
    values.take(level.nodes.ravel(), 0, terms, "clip")
    rows.take(level.weights.ravel(), 0, weights, "clip")
    np.add(terms, weights, out=terms)
    out = values[level.first : level.last]
    np.maximum(terms[:wide], terms[-wide:], out=out)
    for k in range(1, len(level.nodes) - 1):
        np.maximum(out, terms[k * wide : (k + 1) * wide], out=out)
