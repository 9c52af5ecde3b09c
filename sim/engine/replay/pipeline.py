"""When the passes of a pipeline run: wavefronts of maxima and sums, for many layouts at once.

Every moment of a node is the latest of a few moments of earlier nodes, each plus some seconds.
Nodes of a wavefront depend only on earlier wavefronts, so a wavefront is a few operations on
arrays. Layouts with the same schedule and style of exchange differ only in the seconds.
"""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sim.config.dataclass import dataclass
from sim.engine.replay.grid import ARRIVAL, END, FIRST_SIDE, HOST_FREE, REACHED, Grid, Indices
from sim.engine.replay.pass_map import BROUGHT, COMPUTED, COMPUTED_2, FIRST_STREAM, HOST, READY

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Durations:
    """Seconds of passes and messages.

    `maps` are the (max, +) maps of the kinds of passes [outputs, inputs, kinds, layouts]. Outputs
    are the end, the host, the side streams, and, if an operation waits for it, the end of the last
    but one computation. Inputs are as in `sim.engine.replay.pass_map`. Maps have a single layout if
    all layouts have equal maps. `messages` are the seconds of messages between neighbours [pairs,
    layouts], `opening` the times at which stages begin [layouts].
    """

    maps: Floats
    messages: Floats
    opening: Floats

    @property
    def sides(self) -> int:
        return int(self.maps.shape[1]) - FIRST_STREAM

    @property
    def asks_before_last(self) -> bool:
        """Whether an operation waits for the last but one computation."""
        return len(self.maps) > 2 + self.sides


class Pipeline:
    """Evaluates a grid in wavefronts. Each kind of pass has a number of `computations`. With
    `sync`, the host waits for receipts that block the compute stream."""

    def __init__(self, grid: Grid, *, sync: bool, computations: tuple[int, ...]) -> None:
        self.grid, self.sync = grid, sync
        self.computed = self._computed(computations)

    def _computed(self, computations: tuple[int, ...]) -> Indices:
        """The number of computations before each node on its stage."""
        grid = self.grid
        columns = np.append(np.array(computations, dtype=np.int64), 0)[grid.kind]
        total = np.cumsum(columns) - columns
        first = np.concatenate(([0], grid.ends[:-1] + 1))
        counts: Indices = total - np.repeat(total[first], grid.ends + 1 - first)
        return counts

    def times(self, durations: Durations) -> Floats:
        """All moments [moments, nodes, layouts]. Two further nodes come last: the opening, and one
        for moments that never happen."""
        size, layouts = self.grid.size + 2, len(durations.opening)
        count = FIRST_SIDE - 2 + len(durations.maps)
        moments = np.full((count, size, layouts), -np.inf)
        moments[[END, REACHED, HOST_FREE], self.grid.size] = durations.opening
        moments[FIRST_SIDE : FIRST_SIDE + durations.sides, self.grid.size] = durations.opening
        return self.continued(moments, durations, np.arange(self.grid.size))

    def continued(self, moments: Floats, durations: Durations, nodes: Indices) -> Floats:
        """Compute the moments of some nodes from the given moments of earlier nodes."""
        order, bounds = self._wavefronts_of(nodes)
        place = np.empty(self.grid.size + 2, dtype=np.int64)
        place[order] = np.arange(len(order))
        rest = np.setdiff1d(np.arange(len(place)), order, assume_unique=True)
        place[rest] = len(order) + np.arange(len(rest))
        causes, like = self._causes(place, order, durations), self._like(order)
        lags = self._lags(order[like[0]], durations)
        messages = self._messages(order, durations)
        moments = np.take(moments, np.concatenate((order, rest)), axis=1)
        flat = moments.reshape(-1, moments.shape[2])
        for first, last in pairwise(bounds.tolist()):
            terms = flat.take(causes[:, first:last], axis=0)
            terms[-len(messages) :] += messages[:, first:last]
            sums = terms + lags.take(like[1][first:last], axis=2)
            np.maximum.reduce(sums, axis=1, out=moments[:, first:last])
        times: Floats = np.take(moments, place, axis=1)
        return times

    def _wavefronts_of(self, nodes: Indices) -> tuple[Indices, Indices]:
        """Some nodes in the order of their wavefronts, and the bounds of the wavefronts."""
        depth = self.grid.depth[nodes]
        order = np.argsort(depth, kind="stable")
        bounds = np.flatnonzero(np.diff(depth[order])) + 1
        return nodes[order], np.concatenate(([0], bounds, [len(order)]))

    def _like(self, nodes: Indices) -> tuple[Indices, Indices]:
        """One place for each distinct set of lags, and for each node the number of its set."""
        keys = 3 * self.grid.kind[nodes] + np.minimum(self.computed[nodes], 2)
        _, first, number = np.unique(keys, return_index=True, return_inverse=True)
        return first, number

    def _causes(self, place: Indices, nodes: Indices, durations: Durations) -> Indices:
        """The moments on which some nodes depend [causes, nodes], as indices into moments x places.
        First come the moments of the node before, then the terms of the node's arrival."""
        grid, size, sides = self.grid, self.grid.size + 2, durations.sides
        before = grid.before[nodes]
        before = place[np.where(before >= 0, before, grid.size)]
        outputs = [
            END,
            HOST_FREE,
            *range(FIRST_SIDE, FIRST_SIDE + sides + durations.asks_before_last),
        ]
        awaited, never = grid.nodes[:, nodes], place[grid.size + 1]
        terms = np.where(awaited >= 0, grid.moments[:, nodes] * size + place[awaited], never)
        return np.concatenate([*([moment * size + before] for moment in outputs), terms])

    def _messages(self, nodes: Indices, durations: Durations) -> Floats:
        """The seconds of the messages for which arrivals wait [terms, nodes, layouts]."""
        silent = np.zeros((1, len(durations.opening)))
        messages: Floats = np.concatenate([durations.messages, silent])[
            self.grid.messages[:, nodes]
        ]
        return messages

    def _lags(self, nodes: Indices, durations: Durations) -> Floats:
        """The seconds from each cause to each moment of a node, without messages [moments, causes,
        nodes, layouts]."""
        grid, sides = self.grid, durations.sides
        kind = grid.kind[nodes]
        maps = np.concatenate([durations.maps, _idle(durations.maps)], axis=2)[:, :, kind]
        never = np.full_like(maps[:, 0], -np.inf)
        few = [(self.computed[nodes] < back)[:, None] for back in (1, 2)]
        local = [
            np.maximum(maps[:, READY], np.where(few[0], never, maps[:, COMPUTED])),
            maps[:, HOST],
            *(maps[:, FIRST_STREAM + side] for side in range(sides)),
        ]
        if durations.asks_before_last:
            local.append(np.where(few[1], never, maps[:, COMPUTED_2]))
        arrival = maps[:, READY]
        if self.sync:
            arrival = np.maximum(arrival, maps[:, HOST])
        if not grid.blocking:
            # Operations wait for the input if they name it or if an awaited computation is missing.
            missing = (np.where(few[0], maps[:, COMPUTED], never),
                       np.where(few[1], maps[:, COMPUTED_2], never))  # fmt: skip
            arrival = np.maximum.reduce([arrival, maps[:, BROUGHT], *missing])
        count = FIRST_SIDE - 2 + len(maps)
        lags = np.full((count, len(local) + len(grid.nodes), *maps.shape[2:]), -np.inf)
        mapped = [END, HOST_FREE, *range(FIRST_SIDE, count)]
        for cause, lag in enumerate(local):
            lags[mapped, cause] = lag
        lags[mapped, len(local) :] = arrival[:, None]
        lags[ARRIVAL, len(local) :] = 0.0
        lags[REACHED] = np.maximum(lags[END], lags[HOST_FREE])
        return lags


def _idle(maps: Floats) -> Floats:
    """The map of a stage's end, at which nothing runs: moments stay as they are."""
    outputs, inputs, _, layouts = maps.shape
    idle = np.full((outputs, inputs, 1, layouts), -np.inf)
    given_back = [READY, HOST, *range(FIRST_STREAM, inputs), COMPUTED]
    for output, given in enumerate(given_back[:outputs]):
        idle[output, given] = 0.0
    return idle
