"""The record of a program that was played without a clock: the arrays that the clock would log."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sim.engine.costs import Parts
from sim.engine.fold import Folding
from sim.engine.folded import Traffic
from sim.engine.maxplus.grid import ARRIVAL, END, HOST_FREE, REACHED, Grid, Indices
from sim.engine.maxplus.pipeline import BEFORE_LAST, FIRST_SIDE_MOMENT
from sim.engine.maxplus.play import Estimate, Played
from sim.engine.maxplus.routine import Form
from sim.engine.maxplus.routine import Played as PlayedOperation
from sim.engine.record import COMMUNICATION, Floats, Record, Track
from sim.program.causes import PIPELINE
from sim.program.operations import COMPUTE_STREAM
from sim.program.program import message_stream

NONE = -1


@dataclass(slots=True)
class _Rows:
    """Steps of one stream, to be put in order: arrays of one length, flights one column each."""

    place: Indices
    start: Floats
    end: Floats
    parts: int = COMMUNICATION
    flights: Sequence[tuple[int | Indices, Floats, Floats]] = ()  # kind, begun, arrived


class Writer:
    def __init__(self, played: Played, estimate: Estimate) -> None:
        self.played, self.estimate = played, estimate
        self.grid: Grid = estimate.grid
        self.moments = played.moments[:, :, 0]
        self.parts: list[Parts] = []
        self.kinds: dict[tuple[str, str], int] = {}
        self.inputs = self._inputs()
        self.alone = np.array([traffic.alone for traffic in estimate.messages] or [0.0])

    def record(self, folding: Folding) -> Record:
        """The record of what was played."""
        tracks = [track for stage in range(len(self.estimate.desks)) for track in self._tracks(stage)]
        passes = self.moments[END, : self.grid.size][self.grid.kind >= 0]
        return Record(
            roles=tuple(role for role, _ in folding.roles),
            tracks=tuple(tracks),
            parts=self.parts,
            kinds=list(self.kinds),
            end=float(self.played.end[0]),
            passes_end=float(passes.max(initial=0.0)),
            steps=sum(len(track.start) for track in tracks),
            program=folding.folded,
        )

    def messages(self) -> Iterator[tuple[Traffic, Floats]]:
        """What passes between neighbours, a stream at a time, and when each message began."""
        grid = self.grid
        taken = np.flatnonzero(grid.received >= 0)
        streams = grid.received[taken] * 2 + grid.way[taken]
        for number in np.unique(streams).tolist():
            nodes = taken[streams == number]
            yield self.estimate.messages[number // 2], self._begun[nodes]

    def collectives(self) -> Iterator[tuple[Traffic, Floats]]:
        """Collectives outside of computations, and when each began."""
        for kind, own in enumerate(self.estimate.maps):
            nodes = np.flatnonzero(self.grid.kind == kind)
            for operation in own.played:
                for _, traffic in operation.traffic:
                    yield traffic, self.at(operation.start, nodes)
        closing = self.played.closing
        for stage, steps in enumerate(closing.steps):
            for step, span in zip(steps, closing.spans[stage], strict=True):
                for members, (_, traffic) in zip(step.members, step.traffic, strict=True):
                    if stage == members[0]:
                        yield traffic, span.begun

    @cached_property
    def _begun(self) -> Floats:
        """When the message that brings each node's input began."""
        grid = self.grid
        if not grid.batched:
            begun: Floats = self.moments[ARRIVAL, : grid.size] - self.alone[grid.received]
            return begun
        return self._joined(0)

    def _joined(self, term: int) -> Floats:
        """When both ends of an exchange's message had come: two terms of a node's arrival."""
        grid = self.grid
        reached = np.append(self.moments[REACHED, : grid.size + 1], -np.inf)
        at = np.where(grid.nodes >= 0, grid.nodes, grid.size + 1)
        joined: Floats = np.maximum(reached[at[term]], reached[at[term + 1]])
        return joined

    def _inputs(self) -> Floats:
        """What the passes of all nodes depended on [inputs, nodes], as routines number it."""
        grid, moments = self.grid, self.moments
        before = np.where(grid.before >= 0, grid.before, grid.size)
        arrival = moments[ARRIVAL, : grid.size]
        host = moments[HOST_FREE, before]
        if self.played.pipeline.sync:
            host = np.maximum(host, arrival)
        brought = np.full_like(arrival, -np.inf) if grid.blocking else arrival
        count = self.played.pipeline.computed(self.played.durations)
        return np.stack(
            [
                np.maximum(moments[END, before], arrival),
                host,
                np.where(count >= 1, moments[END, before], brought),
                np.where(count >= 2, moments[BEFORE_LAST, before], brought),
                brought,
                *moments[FIRST_SIDE_MOMENT:, before],
            ]
        )

    def at(self, form: Form, nodes: Indices) -> Floats:
        """A form's moments at some nodes."""
        lags = [(given, lag) for given, lag in enumerate(form) if lag > -np.inf]
        terms = [self.inputs[given, nodes] + lag for given, lag in lags]
        return np.maximum.reduce(terms) if terms else np.zeros(len(nodes))

    def _tracks(self, stage: int) -> Iterable[Track]:
        """All streams of a stage."""
        rows: dict[str, list[_Rows]] = {COMPUTE_STREAM: []}
        self._open(stage, rows)
        self._pass(stage, rows)
        self._close(stage, rows)
        return [self._track(stage, stream, own) for stream, own in rows.items() if own]

    def _open(self, stage: int, rows: dict[str, list[_Rows]]) -> None:
        for operation in self.estimate.program.stages[stage].opening:
            cost = self.estimate.costs[stage].of(operation.work)
            start, end = np.zeros(1), np.array([cost.duration.lead])
            rows[COMPUTE_STREAM].append(_Rows(np.array([-1]), start, end, self._row(cost.parts)))

    # --- Passes ----------------------------------------------------------------------------------

    def _pass(self, stage: int, rows: dict[str, list[_Rows]]) -> None:
        """Receipts, the operations of routines, dispatches."""
        grid, own = self.grid, np.flatnonzero(self.grid.stage == stage)
        if grid.batched:
            self._exchanges(own, rows)
        else:
            self._messages(stage, own, rows)
        for kind in np.unique(grid.kind[own][grid.kind[own] >= 0]).tolist():
            nodes = own[grid.kind[own] == kind]
            for number, operation in enumerate(self.estimate.maps[kind].played):
                self._operation(operation, nodes, number, rows)

    def _operation(
        self,
        played: PlayedOperation,
        nodes: Indices,
        number: int,
        rows: dict[str, list[_Rows]],
    ) -> None:
        place = _place(nodes, 1 + number)
        start, end = self.at(played.start, nodes), self.at(played.end, nodes)
        parts = COMMUNICATION if played.parts is None else self._row(played.parts)
        flights = [
            (self._kind(call.cause, call.kind), start, start + traffic.alone)
            for call, traffic in played.traffic
        ]
        stream = rows.setdefault(played.operation.stream, [])
        stream.append(_Rows(place, start, end, parts, flights))

    def _messages(self, stage: int, own: Indices, rows: dict[str, list[_Rows]]) -> None:
        grid, arrival = self.grid, self.moments[ARRIVAL]
        send = self._kind(PIPELINE, "send")
        received = own[grid.source[own] >= 0]
        flight = (send, self._begun[received], arrival[received])
        if grid.blocking and len(received):
            start = self.moments[END, np.where(grid.before[received] >= 0, grid.before[received], grid.size)]
            rows[COMPUTE_STREAM].append(
                _Rows(_place(received, 0), start, arrival[received], flights=[flight])
            )
        elif len(received):
            self._queues(stage, "receive", received, grid.source, received, rows)
        sent = own[grid.target[own] >= 0]
        if len(sent):
            self._queues(stage, "send", sent, grid.target, grid.target[sent], rows)

    def _queues(
        self,
        stage: int,
        what: str,
        nodes: Indices,
        peers: Indices,
        takers: Indices,
        rows: dict[str, list[_Rows]],
    ) -> None:
        """Messages on streams of their own, one for each direction and peer."""
        grid, arrival = self.grid, self.moments[ARRIVAL]
        send, stages = self._kind(PIPELINE, "send"), grid.schedule.stages
        peer, way = grid.stage[peers[nodes]], grid.way[nodes]
        for number in dict.fromkeys((way * stages + peer).tolist()):
            here = way * stages + peer == number
            end = arrival[takers[here]]
            ready = self.moments[END, nodes[here]] if what == "send" else np.zeros(len(end))
            start = np.maximum(ready, np.concatenate(([0.0], end[:-1])))
            begun = self._begun[takers[here]]
            name = message_stream(what, "FB"[number // stages], stage, number % stages, stages)
            place = _place(nodes[here], 2000)
            rows.setdefault(name, []).append(_Rows(place, start, end, flights=[(send, begun, end)]))

    def _exchanges(self, own: Indices, rows: dict[str, list[_Rows]]) -> None:
        """One blocking exchange between two passes: what the one sends, what the other receives."""
        grid, size = self.grid, self.grid.size
        send = self._kind(PIPELINE, "send")
        flights = []
        for term in (2, 0):  # what the one pass sends, then what the other receives
            there, begun = grid.messages[term] >= 0, self._joined(term)
            arrived = np.where(there, begun + self.alone[grid.messages[term]], np.nan)
            flights.append((np.where(there, send, NONE), begun, arrived))
        nodes = own[(flights[0][0][own] >= 0) | (flights[1][0][own] >= 0)]
        if not len(nodes):
            return
        before = np.where(grid.before[nodes] >= 0, grid.before[nodes], size)
        chosen = [(kind[nodes], begun[nodes], arrived[nodes]) for kind, begun, arrived in flights]
        rows[COMPUTE_STREAM].append(
            _Rows(
                _place(nodes, 0),
                self.moments[END, before],
                self.moments[ARRIVAL, nodes],
                flights=chosen,
            )
        )

    # --- The end of the step ---------------------------------------------------------------------

    def _close(self, stage: int, rows: dict[str, list[_Rows]]) -> None:
        closing = self.played.closing
        place = _place(np.array([self.grid.size]), 0)
        for step, span in zip(closing.steps[stage], closing.spans[stage], strict=True):
            place = place + 1
            flights = [
                (self._kind(call.cause, call.kind), span.begun, span.begun + traffic.alone)
                for call, traffic in step.traffic
            ]
            parts = COMMUNICATION if step.parts is None else self._row(step.parts)
            stream = rows.setdefault(step.operation.stream, [])
            stream.append(_Rows(place, span.start, span.end, parts, flights))

    # --- Arrays ----------------------------------------------------------------------------------

    def _row(self, parts: Parts) -> int:
        self.parts.append(parts)
        return len(self.parts) - 1

    def _kind(self, cause: str, kind: str) -> int:
        return self.kinds.setdefault((cause, kind), len(self.kinds))

    def _track(self, stage: int, stream: str, rows: Sequence[_Rows]) -> Track:
        """Rows in the order in which the program has them."""
        order = np.argsort(np.concatenate([row.place for row in rows]), kind="stable")
        most = max(len(row.flights) for row in rows)
        kinds = np.full((len(order), most), NONE, dtype=np.intp)
        begun, arrived = np.full((2, len(order), most), np.nan)
        first = 0
        for row in rows:
            here = slice(first, first + len(row.place))
            for column, (kind, begins, arrives) in enumerate(row.flights):
                kinds[here, column], begun[here, column] = kind, begins
                arrived[here, column] = arrives
            first += len(row.place)
        parts = np.concatenate([np.full(len(row.place), row.parts) for row in rows])
        return Track(
            role=stage,
            stream=stream,
            start=np.concatenate([row.start for row in rows])[order],
            end=np.concatenate([row.end for row in rows])[order],
            parts=parts[order],
            transfers=kinds[order],
            begun=begun[order],
            arrived=arrived[order],
        )


def _place(nodes: Indices, number: int) -> Indices:
    """Where the steps of nodes stand in their stage's program: node by node, step by step."""
    place: Indices = nodes * 4096 + number
    return place
