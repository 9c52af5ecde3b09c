"""Write the record of a program that was played without a clock, in the clock's arrays."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Literal

import numpy as np

from sim.engine.costs import Parts
from sim.engine.fold import Folding
from sim.engine.folded import LinkClass, Traffic
from sim.engine.record import Record
from sim.engine.replay.grid import ARRIVAL, END, FIRST_SIDE, HOST_FREE, REACHED, Grid, Indices
from sim.engine.replay.pass_map import PassMap
from sim.engine.replay.play import Estimate, Played
from sim.engine.timeline import Role
from sim.engine.tracks import COMMUNICATION, Floats, Runs, Track, action_row
from sim.program.causes import PIPELINE, Cause
from sim.program.operations import COMPUTE_STREAM, Collective
from sim.program.program import message_stream
from sim.program.schedule import KINDS

NONE = -1
_FIRST = 2  # number of a pass's first operation; exchanges before it have smaller numbers


@dataclass(slots=True)
class _Rows:
    """Steps of one stream, not yet in order, as arrays of equal length.

    `place` is node x `Writer.room` + a number in the node. Each of the `flights` (kinds, begun,
    arrived) is a column of transfers; `actions` are the passes of computations.
    """

    place: Indices
    start: Floats
    end: Floats
    parts: int = COMMUNICATION
    flights: Sequence[tuple[int | Indices, Floats, Floats]] = ()
    actions: Indices | None = None


class Writer:
    """Writes the tracks of programs of one shape and form that were played together. The last axis
    of all times has a column for each program."""

    def __init__(self, played: Played, estimates: Sequence[Estimate]) -> None:
        self.played, self.estimates, self.estimate = played, estimates, estimates[0]
        self.grid: Grid = self.estimate.grid
        self.moments = played.moments
        stages = self.estimate.program.stages
        longest = max(len(ops) + len(stage.beside) for stage in stages for ops in stage.all_ops)
        self.room = 2 * (longest + 4)  # the most steps of a node: exchanges, a pass, messages
        self.parts: list[Mapping[Cause, float | Floats]] = []
        self.kinds: dict[tuple[Cause, str], int] = {}
        self.inputs = self._inputs()
        alone = [[traffic.alone for traffic in e.messages] or [0.0] for e in estimates]
        self.alone = np.array(alone).T

    def column(self, number: int) -> "Writer":
        """A writer for one of the programs."""
        here = slice(number, number + 1)
        played = replace(self.played, moments=self.moments[..., here], end=self.played.end[here])
        return Writer(played, self.estimates[here])

    def record(self, folding: Folding) -> Record:
        """The record of a single program that was played."""
        record = Record.of(self.runs(tuple(role for role, _ in folding.roles)), 0, folding.folded)
        return replace(record, moments=self.moments_of, carried=partial(self._carried, folding))

    def moments_of(self, stage: int, place: Indices, number: Indices) -> tuple[Floats, Floats]:
        """When operations of a stage began and ended, with arguments as in `Record.moments`."""
        codes, starts, ends = self._by_place
        first = int(self.grid.ends[stage]) - len(self.grid.schedule.orders[stage])
        found = np.searchsorted(codes, (first + place) * self.room + _FIRST + number)
        return starts[found], ends[found]

    @cached_property
    def _by_place(self) -> tuple[Indices, Floats, Floats]:
        """Place, start and end of all steps of all streams in the first column, by place."""
        rows = [row for stream_rows in self.rows.values() for row in stream_rows]
        places = np.concatenate([row.place for row in rows])
        starts = np.concatenate([row.start[:, 0] for row in rows])
        ends = np.concatenate([row.end[:, 0] for row in rows])
        order = np.argsort(places, kind="stable")
        return places[order], starts[order], ends[order]

    def _carried(self, folding: Folding) -> dict[LinkClass, tuple[float, float]]:
        """The bytes that links carry (`Record.carried`)."""
        from sim.engine.replay.carried import carried  # few records need it

        return carried(folding, self.played, self.estimate, self.messages(), self.traffic)

    def runs(self, roles: tuple[Role, ...]) -> Runs:
        """The runs of all programs, with a column for each."""
        self.rows: dict[str, list[_Rows]] = {COMPUTE_STREAM: []}
        self._open()
        if self.grid.batched:
            self._exchanges()
        else:
            self._messages()
        for nodes, kind in self._passes():
            for number in range(len(self.estimate.maps[kind].played)):
                self._operation(kind, number, nodes)
        self._close()
        tracks = [
            track for stream, rows in self.rows.items() for track in self._tracks(stream, rows)
        ]
        return Runs(
            roles=roles,
            tracks=tuple(sorted(tracks, key=lambda track: track.role)),
            parts=self.parts,
            kinds=list(self.kinds),
            end=self.played.end,
            passes_end=self.passes_end.max(axis=0),
            step=self.played.end,
        )

    @cached_property
    def passes_end(self) -> Floats:
        """When the last pass of each stage ended [stages, columns]."""
        ends: Floats = self.moments[END, self.grid.ends - 1]
        return ends

    def messages(self) -> Iterator[tuple[Sequence[Traffic], Floats]]:
        """Yield each stream of messages: their traffic in each column, and when each began."""
        grid = self.grid
        taken = np.flatnonzero(grid.received >= 0)
        streams = grid.received[taken] * 2 + grid.way[taken]
        for number in sorted(set(streams.tolist())):
            nodes = taken[streams == number]
            yield [e.messages[number // 2] for e in self.estimates], self._begun[nodes]

    def collectives(self) -> Iterator[tuple[Sequence[Traffic], Floats]]:
        """Yield the traffic of collectives outside of computations, and when each began."""
        for kind, map_ in enumerate(self.estimate.maps):
            if any(operation.collectives for operation in map_.played):
                nodes, stage = np.flatnonzero(self.grid.kind == kind), self.grid.kinds[kind][0]
                for number in range(len(map_.played)):
                    for _, traffic in self.traffic(kind, number):
                        yield traffic, self.at(self.lags(kind, number, "start"), nodes)
        closing = self.played.closing
        for stage, steps in enumerate(closing.steps):
            for number, (step, span) in enumerate(zip(steps, closing.spans[stage], strict=True)):
                for members, (_, traffic) in zip(
                    step.members, self._traffic_at_end(stage, number), strict=True
                ):
                    if stage == members[0]:
                        yield traffic, span.begun[None]

    def traffic(self, kind: int, number: int) -> Iterator[tuple[Collective, Sequence[Traffic]]]:
        """Yield the collectives of an operation of passes, with their traffic in each column."""
        stage = self.grid.kinds[kind][0]
        columns = [(e.machine.desks[stage], e.maps[kind].played[number]) for e in self.estimates]
        for place, call in enumerate(columns[0][1].collectives):
            if columns[0][0].group(call, stage) is not None:
                yield call, [desk.traffic(op.collectives[place], stage) for desk, op in columns]

    def _traffic_at_end(
        self, stage: int, number: int
    ) -> Iterator[tuple[Collective, Sequence[Traffic]]]:
        """Yield the collectives of a closing operation, with their traffic in each column."""
        steps = [e.closing[stage].steps[number] for e in self.estimates]
        for place, (call, _) in enumerate(steps[0].traffic):
            yield call, [step.traffic[place][1] for step in steps]

    @cached_property
    def _begun(self) -> Floats:
        """When the message with each node's input began."""
        grid = self.grid
        if not grid.batched:
            begun: Floats = self.moments[ARRIVAL, : grid.size] - self.alone[grid.received]
            return begun
        return self._joined(0)

    def _joined(self, term: int) -> Floats:
        """When both sides had joined an exchange: the later of two terms of a node's arrival."""
        grid = self.grid
        reached = self.moments[REACHED]
        at = np.where(grid.nodes >= 0, grid.nodes, grid.size + 1)
        joined: Floats = np.maximum(reached[at[term]], reached[at[term + 1]])
        return joined

    def _inputs(self) -> Floats:
        """The moments on which the passes of all nodes depended [inputs, nodes, columns]; the
        inputs are as in the maps of passes."""
        grid, moments = self.grid, self.moments
        before = np.where(grid.before >= 0, grid.before, grid.size)
        arrival = moments[ARRIVAL, : grid.size]
        host = moments[HOST_FREE, before]
        if self.played.pipeline.sync:
            host = np.maximum(host, arrival)
        brought = np.full_like(arrival, -np.inf) if grid.blocking else arrival
        count = self.played.pipeline.computed[:, None]
        return np.stack(
            [
                np.maximum(moments[END, before], arrival),
                host,
                np.where(count >= 1, moments[END, before], brought),
                np.where(count >= 2, moments[-1, before], brought),  # used only if awaited
                brought,
                *moments[FIRST_SIDE : FIRST_SIDE + len(self.estimate.streams), before],
            ]
        )

    def lags(self, kind: int, number: int, moment: Literal["start", "host", "end"]) -> Floats:
        """The form of a moment of an operation in passes of a kind [inputs, columns]. There is a
        single column if all columns are equal."""
        played = [map_.played[number] for map_ in self._maps(kind)]
        lags: Floats = np.array([getattr(operation, moment) for operation in played]).T
        return lags

    def at(self, lags: Floats, nodes: Indices) -> Floats:
        """The moments of a form [inputs, columns] at some nodes."""
        given = np.flatnonzero((lags > -np.inf).any(axis=1))
        if not len(given):
            return np.zeros((len(nodes), self.moments.shape[2]))
        terms = self.inputs[given[:, None], nodes] + lags[given, None]
        moments: Floats = np.maximum.reduce(terms)
        return moments

    def _maps(self, kind: int) -> Sequence[PassMap]:
        """The maps of a kind of pass in all columns, or a single map if all columns share it."""
        maps = [e.maps[kind] for e in self.estimates]
        return maps[:1] if all(map_ is maps[0] for map_ in maps) else maps

    # --- Passes ----------------------------------------------------------------------------------

    def _open(self) -> None:
        """Write the work of stages before their passes."""
        first = np.concatenate(([0], self.grid.ends[:-1] + 1))
        for stage in range(self.grid.schedule.stages):
            node = first[stage : stage + 1]
            costs = [
                e.machine.costs[stage].of(opening.work)
                for e in self.estimates
                if (opening := e.program.stages[stage].opening) is not None
            ]
            if costs:
                end = np.array([[cost.duration.lead for cost in costs]])
                parts = _in_columns([cost.parts for cost in costs])
                self._add(COMPUTE_STREAM, node, 0, np.zeros_like(end), end, parts)

    def _passes(self) -> Iterator[tuple[Indices, int]]:
        """Yield groups of nodes that run equal operations in equal times, and a kind of each."""
        first: dict[tuple[int, ...], int] = {}
        alike = np.array(
            [
                first.setdefault(tuple(map(id, self._maps(kind))), kind)
                for kind in range(len(self.grid.kinds))
            ]
            or [0]
        )
        nodes = np.flatnonzero(self.grid.kind >= 0)
        kinds = alike[self.grid.kind[nodes]]
        order = np.argsort(kinds, kind="stable")
        bounds = np.flatnonzero(np.diff(kinds[order])) + 1
        for same in np.split(nodes[order], bounds):
            yield same, int(self.grid.kind[same[0]])

    def _operation(self, kind: int, number: int, nodes: Indices) -> None:
        played = self.estimate.maps[kind].played[number]
        start, end = (self.at(self.lags(kind, number, when), nodes) for when in ("start", "end"))
        flights = [
            (self._kind(call.cause, call.kind), start, start + _alone(traffic))
            for call, traffic in self.traffic(kind, number)
        ]
        parts = _in_columns([map_.played[number].parts for map_ in self._maps(kind)])
        actions = None if parts is None else self._actions(kind, number, nodes)
        place = _FIRST + number
        self._add(played.operation.stream, nodes, place, start, end, parts, flights, actions)

    def _actions(self, kind: int, number: int, nodes: Indices) -> Indices:
        """The passes to which an operation of some nodes belongs, as in `Track.actions`."""
        stage, variant = self.grid.kinds[kind]
        passes = self.estimate.program.stages[stage].ops_by_variant[variant].passes
        if not passes:
            return self._own[nodes]
        return np.tile(np.array(action_row(passes[number]), dtype=np.intp), (len(nodes), 1))

    @cached_property
    def _own(self) -> Indices:
        """The pass of every node, as in `Track.actions`."""
        passes = np.full((self.grid.size, 3), NONE, dtype=np.intp)
        for actions, end in zip(self.grid.schedule.actions, self.grid.ends.tolist(), strict=True):
            kinds, places = np.unique(actions.kinds, return_inverse=True)
            codes = np.array([KINDS.index(kind) for kind in kinds.tolist()], dtype=np.intp)
            first = end - len(actions.rows)
            rows = codes[places], actions.microbatches, actions.chunks
            passes[first:end] = np.stack(rows, axis=1)
        return passes

    def _messages(self) -> None:
        """Write messages on streams of their own; receipts may block the compute stream instead."""
        grid, arrival = self.grid, self.moments[ARRIVAL, : self.grid.size]
        received = np.flatnonzero(grid.source >= 0)
        if grid.blocking and len(received):
            start = self.moments[END, self._before(received)]
            flights = [(self._send, self._begun[received], arrival[received])]
            self._add(COMPUTE_STREAM, received, 1, start, arrival[received], flights=flights)
        elif len(received):
            self._queued("receive", received, grid.source, received)
        sent = np.flatnonzero(grid.target >= 0)
        if len(sent):
            self._queued("send", sent, grid.target, grid.target[sent])

    def _queued(self, verb: str, nodes: Indices, peers: Indices, takers: Indices) -> None:
        """Write sends or receipts (`verb`), which wait for earlier entries of the same stream."""
        grid, stages = self.grid, self.grid.schedule.stages
        keys = (grid.way[nodes] * stages + grid.stage[nodes]) * stages + grid.stage[peers[nodes]]
        order = np.argsort(keys, kind="stable")
        nodes, takers, keys = nodes[order], takers[order], keys[order]
        begun, end = self._begun[takers], self.moments[ARRIVAL, takers]
        before = np.concatenate((np.zeros_like(end[:1]), end[:-1]))
        before[np.concatenate(([True], np.diff(keys) != 0))] = 0.0
        start = np.maximum(self.moments[END, nodes], before) if verb == "send" else before
        names = {key: self._stream(verb, key) for key in dict.fromkeys(keys.tolist())}
        for name in dict.fromkeys(names.values()):
            here = np.isin(keys, [key for key, stream in names.items() if stream == name])
            flights = [(self._send, begun[here], end[here])]
            self._add(name, nodes[here], self.room // 2, start[here], end[here], flights=flights)

    def _stream(self, verb: str, key: int) -> str:
        stages = self.grid.schedule.stages
        rest, peer = divmod(key, stages)
        way, stage = divmod(rest, stages)
        return message_stream(verb, "FB"[way], stage, peer, stages)

    def _exchanges(self) -> None:
        """Write blocking exchanges. An exchange sends the output of the pass before it and receives
        the input of the pass after it."""
        grid = self.grid
        sent, received = grid.messages[2] >= 0, grid.messages[0] >= 0
        nodes = np.flatnonzero(sent | received)
        flights = []
        for term, there in ((2, sent), (0, received)):
            begun = self._joined(term)
            arrived = np.where(there[:, None], begun + self.alone[grid.messages[term]], np.nan)
            flights.append((np.where(there, self._send, NONE)[nodes], begun[nodes], arrived[nodes]))
        start, end = self.moments[END, self._before(nodes)], self.moments[ARRIVAL, nodes]
        self._add(COMPUTE_STREAM, nodes, 1, start, end, flights=flights)

    def _before(self, nodes: Indices) -> Indices:
        """The node before each of some nodes on its stage, or the opening."""
        before = self.grid.before[nodes]
        return np.where(before >= 0, before, self.grid.size)

    # --- The end of the step ---------------------------------------------------------------------

    def _close(self) -> None:
        closing = self.played.closing
        for stage, steps in enumerate(closing.steps):
            node = self.grid.ends[stage : stage + 1]
            for number, (step, span) in enumerate(zip(steps, closing.spans[stage], strict=True)):
                start, begun, end = span.start[None], span.begun[None], span.end[None]
                flights = [
                    (self._kind(call.cause, call.kind), begun, begun + _alone(traffic))
                    for call, traffic in self._traffic_at_end(stage, number)
                ]
                parts = _in_columns([e.closing[stage].steps[number].parts for e in self.estimates])
                place = _FIRST + number
                self._add(step.operation.stream, node, place, start, end, parts, flights)

    # --- Arrays ----------------------------------------------------------------------------------

    def _add(
        self,
        stream: str,
        nodes: Indices,
        number: int,
        start: Floats,
        end: Floats,
        parts: Mapping[Cause, float | Floats] | None = None,
        flights: Sequence[tuple[int | Indices, Floats, Floats]] = (),
        actions: Indices | None = None,
    ) -> None:
        """Add steps of one stream; `parts` is None for communications."""
        row = COMMUNICATION
        if parts is not None:
            row = len(self.parts)
            self.parts.append(parts)
        rows = self.rows.setdefault(stream, [])
        rows.append(_Rows(nodes * self.room + number, start, end, row, flights, actions))

    @property
    def _send(self) -> int:
        return self._kind(PIPELINE, "send")

    def _kind(self, cause: Cause, kind: str) -> int:
        return self.kinds.setdefault((cause, kind), len(self.kinds))

    def _tracks(self, stream: str, rows: Sequence[_Rows]) -> Iterator[Track]:
        """Yield the tracks of a stream, stage by stage, with steps in the order of the program."""
        place = np.concatenate([row.place for row in rows])
        order = np.argsort(place, kind="stable")
        start, end, parts, kinds, begun, arrived, actions = self._columns(rows, order)
        bounds = np.searchsorted(place[order], (self.grid.ends + 1) * self.room).tolist()
        for stage, (first, last) in enumerate(pairwise([0, *bounds])):
            if first < last:
                here = slice(first, last)
                yield Track(
                    role=stage,
                    stream=stream,
                    start=start[here],
                    end=end[here],
                    parts=parts[here],
                    transfers=kinds[here],
                    begun=begun[here],
                    arrived=arrived[here],
                    actions=actions[here],
                )

    def _columns(
        self, rows: Sequence[_Rows], order: Indices
    ) -> tuple[Floats, Floats, Indices, Indices, Floats, Floats, Indices]:
        """Start, end, parts, transfers with beginning and arrival, and pass of steps in order."""
        count, columns = len(order), self.moments.shape[2]
        most = max(len(row.flights) for row in rows)
        kinds = np.full((count, most), NONE, dtype=np.intp)
        start, end = np.empty((2, count, columns))
        begun, arrived = np.full((2, count, most, columns), np.nan)
        actions = np.full((count, 3), NONE, dtype=np.intp)
        parts, spot, first = np.empty(count, dtype=np.intp), np.empty_like(order), 0
        spot[order] = np.arange(count)
        for row in rows:
            here = spot[first : first + len(row.place)]
            start[here], end[here], parts[here] = row.start, row.end, row.parts
            if row.actions is not None:
                actions[here] = row.actions
            for column, (kind, begins, arrives) in enumerate(row.flights):
                kinds[here, column], begun[here, column] = kind, begins
                arrived[here, column] = arrives
            first += len(row.place)
        return start, end, parts, kinds, begun, arrived, actions


def _alone(traffic: Sequence[Traffic]) -> Floats:
    return np.array([of_column.alone for of_column in traffic])


def _in_columns(parts: Sequence[Parts | None]) -> Mapping[Cause, float | Floats] | None:
    """Seconds by cause of a step in all columns, or numbers if all columns are equal."""
    first = parts[0]
    if first is None or all(seconds == first for seconds in parts):
        return first
    given = [seconds or {} for seconds in parts]
    causes = dict.fromkeys(cause for seconds in given for cause in seconds)
    return {cause: np.array([seconds.get(cause, 0.0) for seconds in given]) for cause in causes}
