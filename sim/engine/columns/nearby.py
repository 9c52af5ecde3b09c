"""Columns near a reference: only deviations from the reference are computed, in single precision.

A node is the maximum of terms (node, weight). Let each term lie `slack` below its node in the
reference column. Then deviations d from that column obey

    d(node) = max over its terms of (d(term's node) + d(term's weight) - slack).

Deviations are small compared to the times, so single precision loses less than a millionth of the
times, and only half as many bytes move.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.config.dataclass import dataclass
from sim.engine.columns.graph import Level
from sim.engine.columns.program import ColumnProgram, Compiled
from sim.engine.columns.weights import Floats, Sum, Table

Singles = NDArray[np.float32]
Moves = Mapping[int, tuple[int, float]]  # parameter -> the coordinate that moves it, and how far

_CHUNK = 1024  # columns at a time: the arrays of a level stay in the processor's cache


@dataclass(frozen=True, slots=True)
class _Step:
    """The terms of a level in rows. First comes one term of each node, the largest in the
    reference, whose slack is 0. Then come the nodes' second terms, third terms and so on, with
    their `slack`; `after` has the slices of nodes that have a second term, a third term, ..."""

    level: Level
    nodes: NDArray[np.intp]
    weights: NDArray[np.intp]
    slack: Singles
    after: tuple[slice, ...]


class Nearby:
    """A program whose durations vary around its own durations, along some coordinates.

    Parameter p in `moves` is the program's own value + coordinate x coefficient; other parameters
    keep their values. Each column has one number for each coordinate.
    """

    def __init__(self, columns: ColumnProgram, moves: Moves) -> None:
        self.columns, self.moves = columns, moves
        self._prepare(columns.compiled)

    def times(self, coordinates: Floats, *, group: int = 1) -> Floats:
        """Step times (s) of columns [coordinates, columns]; `group` as in `ColumnProgram.times`."""
        compiled = self.columns.compiled_for(self._bounds(coordinates))
        if compiled is not self._compiled:
            self._prepare(compiled)
        near = coordinates.astype(np.float32)
        wide = max(group, _CHUNK // group * group)
        found = np.empty(near.shape[1])
        for first in range(0, near.shape[1], wide):
            columns = slice(first, first + wide)
            found[columns] = self._deviations(near[:, columns], group)
        return self._end + found

    def _bounds(self, coordinates: Floats) -> Floats:
        """Two columns of parameters: lower and upper bounds of all columns."""
        found: Floats = np.repeat(self.columns.parameters[:, None], 2, axis=1)
        extremes = np.stack([coordinates.min(axis=1), coordinates.max(axis=1)], axis=1)
        for parameter, (coordinate, coefficient) in self.moves.items():
            found[parameter] += coefficient * extremes[coordinate]
        return found

    # --- The reference --------------------------------------------------------------------------

    def _prepare(self, compiled: Compiled) -> None:
        graph, parameters = compiled.graph, self.columns.parameters
        rows, values = graph.table.values(parameters), self.columns.values(compiled)
        self._compiled, self._last = compiled, graph.end
        self._table, place = _moved(graph.table, self.moves)
        self._steps = [_step(level, values, rows, place) for level in graph.levels]
        self._end = float(graph.end.at(values, rows)[0])
        self._end_slack = (self._end - values[graph.end.nodes] - rows[graph.end.rows])[:, None]
        self._end_rows = place[graph.end.rows]
        self._space = np.empty((0, 0), dtype=np.float32)

    # --- Columns --------------------------------------------------------------------------------

    def _deviations(self, coordinates: Singles, group: int) -> Floats:
        """The differences (s) between the step times of some columns and of the reference."""
        columns, last = coordinates.shape[1], self._last
        rows = self._table.values(coordinates)
        values, terms, weights = self._room(columns)
        for step in self._steps:
            _advance(step, values, rows, terms, weights)
            level = step.level
            if group > 1 and level.meeting > level.first:
                met = values[level.first : level.meeting].reshape(-1, columns // group, group)
                met[:] = met.max(axis=2, keepdims=True)
        ends = values[last.nodes].astype(np.float64) + rows[self._end_rows] - self._end_slack
        return np.asarray(ends.max(axis=0))

    def _room(self, columns: int) -> Sequence[Singles]:
        """Arrays for the values of nodes and the terms and weights of a level, to be reused."""
        nodes = self._compiled.graph.nodes
        most = max((step.nodes.size for step in self._steps), default=0)
        if self._space.shape != (nodes + 2 * most, columns):
            self._space = np.zeros((nodes + 2 * most, columns), dtype=np.float32)
        return np.split(self._space, [nodes, nodes + most])


def _advance(step: _Step, values: Singles, rows: Singles, terms: Singles, more: Singles) -> None:
    size, wide = len(step.nodes), step.level.last - step.level.first
    terms, more = terms[:size], more[:size]
    values.take(step.nodes, 0, terms, "clip")
    rows.take(step.weights, 0, more, "clip")
    out = values[step.level.first : step.level.last]
    np.add(terms[:wide], more[:wide], out=out)
    others = terms[wide:]
    np.add(others, more[wide:], out=others)
    np.subtract(others, step.slack, out=others)
    place = 0
    for nodes in step.after:
        latest = out[nodes]
        np.maximum(latest, others[place : place + len(latest)], out=latest)
        place += len(latest)


def _step(level: Level, values: Floats, rows: Floats, place: NDArray[np.intp]) -> _Step:
    slack = values[level.first : level.last] - (values[level.nodes] + rows[level.weights])
    again = (level.nodes == level.nodes[0]) & (level.weights == level.weights[0])
    again[0] = False  # only later terms can be repetitions of a node's first term
    order = np.argsort(np.where(again, np.inf, slack), axis=0, kind="stable")
    widths = [1 + int(row.nonzero()[0].max(initial=-1)) for row in ~again]

    def rowed(table: NDArray[Any]) -> NDArray[Any]:
        ordered = np.take_along_axis(table, order, axis=0)
        return np.concatenate([row[:wide] for row, wide in zip(ordered, widths, strict=True)])

    return _Step(
        level,
        rowed(level.nodes),
        place[rowed(level.weights)],
        rowed(slack)[widths[0] :].astype(np.float32)[:, None],
        tuple(slice(0, wide) for wide in widths[1:] if wide),
    )


def _moved(table: Table, moves: Moves) -> tuple[Table, NDArray[np.intp]]:
    """A table of how much each row's value grows with each coordinate, and each row's place in that
    table. Rows with equal coefficients share a place."""
    number: dict[tuple[tuple[int, float], ...], int] = {}
    place = [number.setdefault(_gain(row, moves), len(number)) for row in table.sums()]
    moved = Table.of(list(number))
    return moved, moved.place[np.array(place, dtype=np.intp)]


def _gain(terms: Sum, moves: Moves) -> tuple[tuple[int, float], ...]:
    total: dict[int, float] = {}
    for parameter, count in terms:
        if parameter in moves:
            coordinate, coefficient = moves[parameter]
            total[coordinate] = total.get(coordinate, 0.0) + count * coefficient
    return tuple(sorted(total.items()))
