"""When the passes of a pipeline run: wavefronts of maxima and sums, for many layouts at once.

Nodes of one wavefront depend on earlier ones only, so that a wavefront is a few operations on
[nodes, layouts] arrays. Layouts with the same schedule and manner of exchange differ in durations
alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sim.engine.maxplus.grid import (
    ARRIVAL,
    END,
    HOST_FREE,
    NOTHING,
    REACHED,
    Grid,
    Indices,
)
from sim.engine.maxplus.routine import COMPUTED, COMPUTED_2, FIRST_SIDE, HOST, READY
from sim.engine.maxplus.routine import ARRIVAL as INPUT

Floats = NDArray[np.float64]

BEFORE_LAST = 4  # the moment of a node at which its last but one computation ended; then sides
FIRST_SIDE_MOMENT = 5


@dataclass(frozen=True, eq=False)
class Durations:
    """What passes and messages take, [kinds, layouts] and [messages, layouts].

    `maps` has the entries of the kinds' (max, +) maps by (output, input): the output is the end (0),
    the last but one computation (1) or a side stream (2 ...), the input as in
    `sim.engine.maxplus.routine`. `host` is what passes hold the host for, `opening` when stages
    begin [layouts], `computations` how many each kind has.
    """

    maps: Mapping[tuple[int, int], Floats]
    host: Floats
    messages: Floats
    opening: Floats
    computations: Indices
    sides: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class _Level:
    nodes: Indices
    before: Indices
    kind: Indices
    moments: Indices
    messages: Indices
    fallback: Indices  # 1 where no computation precedes, 2 where only one does


class Pipeline:
    """A grid in wavefronts."""

    def __init__(self, grid: Grid, *, sync: bool) -> None:
        self.grid, self.sync = grid, sync

    @cached_property
    def levels(self) -> list[Indices]:
        """Nodes by the length of the longest chain before them."""
        depth = np.array(_depths(self.grid), dtype=np.int64)
        order = np.argsort(depth, kind="stable")
        edges = np.flatnonzero(np.diff(depth[order])) + 1
        return np.split(order, edges)

    def times(self, durations: Durations) -> Floats:
        """All moments [moments, nodes, layouts]; behind the nodes stands the opening."""
        grid = self.grid
        layouts, size = durations.host.shape[1], grid.size + 2
        kinds = FIRST_SIDE_MOMENT + durations.sides
        moments = np.full((kinds, size, layouts), -np.inf)
        opening = moments[:, grid.size]
        opening[[END, REACHED, HOST_FREE]] = durations.opening
        opening[FIRST_SIDE_MOMENT:] = 0.0
        flat = moments.reshape(kinds * size, layouts)
        never = grid.size + 1
        before = np.where(grid.before >= 0, grid.before, grid.size)
        rows = np.where(grid.nodes >= 0, grid.moments * size + grid.nodes, never)
        maps = {key: np.vstack([table, _idle(key, layouts)]) for key, table in durations.maps.items()}
        host = np.vstack([durations.host, np.zeros((1, layouts))])
        messages = np.vstack([durations.messages.reshape(-1, layouts), np.zeros((1, layouts))])
        count = self.computed(durations)
        for nodes in self.levels:
            arrival = (flat[rows[:, nodes]] + messages[grid.messages[:, nodes]]).max(axis=0)
            self._advance(moments, nodes, before[nodes], arrival, maps, host, count)
        return moments

    def _advance(
        self,
        moments: Floats,
        nodes: Indices,
        before: Indices,
        arrival: Floats,
        maps: Mapping[tuple[int, int], Floats],
        host: Floats,
        count: Indices,
    ) -> None:
        kind = self.grid.kind[nodes]
        free = moments[HOST_FREE, before]
        if self.sync:
            free = np.maximum(free, arrival)
        ready = np.maximum(moments[END, before], arrival)
        # What blocks the compute stream is behind a pass before anything can wait for it by name.
        brought = np.full_like(arrival, -np.inf) if self.grid.blocking else arrival
        inputs = {READY: ready, HOST: free, INPUT: brought}
        outputs: dict[int, Floats] = {}
        for (output, given), table in maps.items():
            if given not in inputs:
                inputs[given] = self._input(moments, nodes, before, brought, given, count)
            term = inputs[given] + table[kind]
            outputs[output] = np.maximum(outputs[output], term) if output in outputs else term
        free = free + host[kind]
        moments[END, nodes] = outputs[0]
        moments[ARRIVAL, nodes] = arrival
        moments[HOST_FREE, nodes] = free
        moments[REACHED, nodes] = np.maximum(outputs[0], free)
        for output, times in outputs.items():
            if output:
                moments[BEFORE_LAST + output - 1, nodes] = times

    def _input(
        self,
        moments: Floats,
        nodes: Indices,
        before: Indices,
        arrival: Floats,
        given: int,
        count: Indices,
    ) -> Floats:
        """A moment that fewer passes ask for."""
        if given >= FIRST_SIDE:
            return moments[FIRST_SIDE_MOMENT + given - FIRST_SIDE, before]
        back, moment = (1, END) if given == COMPUTED else (2, BEFORE_LAST)
        found: Floats = np.where(count[nodes, None] >= back, moments[moment, before], arrival)
        return found

    def computed(self, durations: Durations) -> Indices:
        """How many computations of passes precede each node on its stage."""
        grid = self.grid
        own = np.append(durations.computations, 0)[grid.kind]
        total = np.cumsum(own) - own
        first = np.concatenate(([0], grid.ends[:-1] + 1))
        return total - np.repeat(total[first], grid.ends + 1 - first)


def _idle(key: tuple[int, int], layouts: int) -> Floats:
    """The map of a stage's end, where nothing runs."""
    output, given = key
    passes = {0: READY, 1: COMPUTED}.get(output, FIRST_SIDE + output - 2)
    return np.full((1, layouts), 0.0 if given == passes else -np.inf)


def _depths(grid: Grid) -> list[int]:
    """Per node the longest chain before it: stages advance until they wait for one another."""
    depth = [NOTHING] * grid.size
    causes = [
        [node for node in column if 0 <= node < grid.size] for column in grid.nodes.T.tolist()
    ]
    ends, at = grid.ends.tolist(), [0, *(end + 1 for end in grid.ends.tolist()[:-1])]
    begins = list(at)
    waiting: dict[int, list[int]] = {}
    ready = list(range(len(ends)))
    while ready:
        stage = ready.pop()
        node, end = at[stage], ends[stage]
        height = depth[node - 1] if node != begins[stage] else NOTHING
        while node <= end:
            for cause in causes[node]:
                there = depth[cause]
                if there == NOTHING and cause != node - 1:
                    waiting.setdefault(cause, []).append(stage)
                    break
                height = max(height, there)
            else:
                height = depth[node] = height + 1
                if node in waiting:
                    ready += waiting.pop(node)
                node += 1
                continue
            break
        at[stage] = node
    return depth


def columns(rows: Sequence[Sequence[float]]) -> Floats:
    """Durations of layouts as columns."""
    return np.array(rows, dtype=np.float64).T
