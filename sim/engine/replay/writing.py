"""The record of a program that was played without a clock: the arrays that the clock would log."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from sim.engine.costs import Parts
from sim.engine.fold import Folding
from sim.engine.folded import Traffic
from sim.engine.record import Record
from sim.engine.replay.grid import (
    ARRIVAL,
    END,
    FIRST_SIDE,
    HOST_FREE,
    REACHED,
    Grid,
    Indices,
)
from sim.engine.replay.pass_map import Form, PlayedOperation
from sim.engine.replay.play import Estimate, Played
from sim.engine.tracks import COMMUNICATION, Floats, Track
from sim.program.causes import PIPELINE, Cause
from sim.program.operations import COMPUTE_STREAM, Collective
from sim.program.program import message_stream

NONE = -1


@dataclass(slots=True)
class _Rows:
    """Steps of one stream, to be put in order: arrays of one length.

    `place` is node x `Writer.room` + number; flights (kinds, begun, arrived) are one column each.
    """

    place: Indices
    start: Floats
    end: Floats
    parts: int = COMMUNICATION
    flights: Sequence[tuple[int | Indices, Floats, Floats]] = ()


class Writer:
    def __init__(self, played: Played, estimate: Estimate) -> None:
        self.played, self.estimate = played, estimate
        self.grid: Grid = estimate.grid
        self.moments = played.moments[:, :, 0]
        stages = estimate.program.stages
        longest = max(len(ops) + len(stage.beside) for stage in stages for ops in stage.all_ops)
        self.room = 2 * (longest + 4)  # steps of one node: exchanges, a pass, messages behind it
        self.parts: list[Parts] = []
        self.kinds: dict[tuple[Cause, str], int] = {}
        self.inputs = self._inputs()
        self.alone = np.array([traffic.alone for traffic in estimate.messages] or [0.0])

    def record(self, folding: Folding) -> Record:
        """The record of what was played."""
        self.rows: dict[str, list[_Rows]] = {COMPUTE_STREAM: []}
        self._open()
        if self.grid.batched:
            self._exchanges()
        else:
            self._messages()
        for nodes, stage, operations in self._passes():
            for number, operation in enumerate(operations):
                self._operation(stage, operation, nodes, number)
        self._close()
        tracks = [
            track for stream, rows in self.rows.items() for track in self._tracks(stream, rows)
        ]
        return Record(
            roles=tuple(role for role, _ in folding.roles),
            tracks=tuple(sorted(tracks, key=lambda track: track.role)),
            parts=self.parts,
            kinds=list(self.kinds),
            end=float(self.played.end[0]),
            passes_end=max(self.passes_end),
            steps=sum(len(track.start) for track in tracks),
            program=folding.folded,
        )

    @cached_property
    def passes_end(self) -> list[float]:
        """When the last pass of each stage ended."""
        ends: list[float] = self.moments[END, self.grid.ends - 1].tolist()
        return ends

    def messages(self) -> Iterator[tuple[Traffic, Floats]]:
        """Messages between neighbours, a stream at a time, and when each began."""
        grid = self.grid
        taken = np.flatnonzero(grid.received >= 0)
        streams = grid.received[taken] * 2 + grid.way[taken]
        for number in np.unique(streams).tolist():
            nodes = taken[streams == number]
            yield self.estimate.messages[number // 2], self._begun[nodes]

    def collectives(self) -> Iterator[tuple[int, Collective, Floats]]:
        """Collectives outside of computations: a stage that takes part, and when each began."""
        for kind, map_ in enumerate(self.estimate.maps):
            if any(operation.collectives for operation in map_.played):
                nodes, stage = np.flatnonzero(self.grid.kind == kind), self.grid.kinds[kind][0]
                for operation in map_.played:
                    for call in operation.collectives:
                        yield stage, call, self.at(operation.start, nodes)
        closing = self.played.closing
        for stage, steps in enumerate(closing.steps):
            for step, span in zip(steps, closing.spans[stage], strict=True):
                for members, (call, _) in zip(step.members, step.traffic, strict=True):
                    if stage == members[0]:
                        yield stage, call, span.begun

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
        """Moments that the passes of all nodes depended on [inputs, nodes], numbered as in the
        maps."""
        grid, moments = self.grid, self.moments
        before = np.where(grid.before >= 0, grid.before, grid.size)
        arrival = moments[ARRIVAL, : grid.size]
        host = moments[HOST_FREE, before]
        if self.played.pipeline.sync:
            host = np.maximum(host, arrival)
        brought = np.full_like(arrival, -np.inf) if grid.blocking else arrival
        count = self.played.pipeline.computed
        return np.stack(
            [
                np.maximum(moments[END, before], arrival),
                host,
                np.where(count >= 1, moments[END, before], brought),
                np.where(count >= 2, moments[-1, before], brought),  # if anything waits for it
                brought,
                *moments[FIRST_SIDE : FIRST_SIDE + len(self.estimate.streams), before],
            ]
        )

    def at(self, form: Form, nodes: Indices) -> Floats:
        """A form's moments at some nodes."""
        lags = [(given, lag) for given, lag in enumerate(form) if lag > -np.inf]
        terms = [self.inputs[given, nodes] + lag for given, lag in lags]
        return np.maximum.reduce(terms) if terms else np.zeros(len(nodes))

    # --- Passes ----------------------------------------------------------------------------------

    def _open(self) -> None:
        """Write the work of stages before their passes."""
        first = np.concatenate(([0], self.grid.ends[:-1] + 1))
        for stage, stage_program in enumerate(self.estimate.program.stages):
            if stage_program.opening is not None:
                cost = self.estimate.machine.costs[stage].of(stage_program.opening.work)
                start, end = np.zeros(1), np.array([cost.duration.lead])
                self._add(COMPUTE_STREAM, first[stage : stage + 1], 0, start, end, cost.parts)

    def _passes(self) -> Iterator[tuple[Indices, int, Sequence[PlayedOperation]]]:
        """The nodes that run the same operations in the same time, and a stage of theirs."""
        maps = self.estimate.maps
        first: dict[int, int] = {}
        alike = np.array(
            [first.setdefault(id(map_), kind) for kind, map_ in enumerate(maps)] or [0]
        )
        nodes = np.flatnonzero(self.grid.kind >= 0)
        kinds = alike[self.grid.kind[nodes]]
        order = np.argsort(kinds, kind="stable")
        bounds = np.flatnonzero(np.diff(kinds[order])) + 1
        for same in np.split(nodes[order], bounds):
            kind = int(self.grid.kind[same[0]])
            yield same, self.grid.kinds[kind][0], maps[kind].played

    def _operation(self, stage: int, played: PlayedOperation, nodes: Indices, number: int) -> None:
        start, end = self.at(played.start, nodes), self.at(played.end, nodes)
        desk = self.estimate.machine.desks[stage]
        flights = [
            (self._kind(call.cause, call.kind), start, start + desk.traffic(call, stage).alone)
            for call in played.collectives
            if desk.group(call, stage) is not None
        ]
        self._add(played.operation.stream, nodes, 2 + number, start, end, played.parts, flights)

    def _messages(self) -> None:
        """Messages on streams of their own; only receipts may block the compute stream."""
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

    def _queued(self, what: str, nodes: Indices, peers: Indices, takers: Indices) -> None:
        """Messages that wait for those before them, between two stages in one direction."""
        grid, stages = self.grid, self.grid.schedule.stages
        keys = (grid.way[nodes] * stages + grid.stage[nodes]) * stages + grid.stage[peers[nodes]]
        order = np.argsort(keys, kind="stable")
        nodes, takers, keys = nodes[order], takers[order], keys[order]
        begun, end = self._begun[takers], self.moments[ARRIVAL, takers]
        before = np.concatenate(([0.0], end[:-1]))
        before[np.concatenate(([True], np.diff(keys) != 0))] = 0.0
        start = np.maximum(self.moments[END, nodes], before) if what == "send" else before
        names = {key: self._stream(what, key) for key in dict.fromkeys(keys.tolist())}
        for name in dict.fromkeys(names.values()):
            here = np.isin(keys, [key for key, stream in names.items() if stream == name])
            flights = [(self._send, begun[here], end[here])]
            self._add(name, nodes[here], self.room // 2, start[here], end[here], flights=flights)

    def _stream(self, what: str, key: int) -> str:
        stages = self.grid.schedule.stages
        rest, peer = divmod(key, stages)
        way, stage = divmod(rest, stages)
        return message_stream(what, "FB"[way], stage, peer, stages)

    def _exchanges(self) -> None:
        """One blocking exchange between two passes: what the one sends, what the other receives."""
        grid = self.grid
        sent, received = grid.messages[2] >= 0, grid.messages[0] >= 0
        nodes = np.flatnonzero(sent | received)
        flights = []
        for term, there in ((2, sent), (0, received)):
            begun = self._joined(term)
            arrived = np.where(there, begun + self.alone[grid.messages[term]], np.nan)
            flights.append((np.where(there, self._send, NONE)[nodes], begun[nodes], arrived[nodes]))
        start, end = self.moments[END, self._before(nodes)], self.moments[ARRIVAL, nodes]
        self._add(COMPUTE_STREAM, nodes, 1, start, end, flights=flights)

    def _before(self, nodes: Indices) -> Indices:
        """The nodes before these on their stages, or the opening."""
        before = self.grid.before[nodes]
        return np.where(before >= 0, before, self.grid.size)

    # --- The end of the step ---------------------------------------------------------------------

    def _close(self) -> None:
        closing = self.played.closing
        for stage, steps in enumerate(closing.steps):
            node = self.grid.ends[stage : stage + 1]
            for number, (step, span) in enumerate(zip(steps, closing.spans[stage], strict=True)):
                flights = [
                    (self._kind(call.cause, call.kind), span.begun, span.begun + traffic.alone)
                    for call, traffic in step.traffic
                ]
                stream = step.operation.stream
                self._add(stream, node, 2 + number, span.start, span.end, step.parts, flights)

    # --- Arrays ----------------------------------------------------------------------------------

    def _add(
        self,
        stream: str,
        nodes: Indices,
        number: int,
        start: Floats,
        end: Floats,
        parts: Parts | None = None,
        flights: Sequence[tuple[int | Indices, Floats, Floats]] = (),
    ) -> None:
        """Steps of one stream; a communication has no parts."""
        row = COMMUNICATION
        if parts is not None:
            row = len(self.parts)
            self.parts.append(parts)
        rows = self.rows.setdefault(stream, [])
        rows.append(_Rows(nodes * self.room + number, start, end, row, flights))

    @property
    def _send(self) -> int:
        return self._kind(PIPELINE, "send")

    def _kind(self, cause: Cause, kind: str) -> int:
        return self.kinds.setdefault((cause, kind), len(self.kinds))

    def _tracks(self, stream: str, rows: Sequence[_Rows]) -> Iterator[Track]:
        """The steps of a stream stage by stage, in the order in which the program has them."""
        place = np.concatenate([row.place for row in rows])
        order = np.argsort(place, kind="stable")
        columns = self._columns(rows, len(place))
        bounds = np.searchsorted(place[order], (self.grid.ends + 1) * self.room).tolist()
        for stage, (first, last) in enumerate(pairwise([0, *bounds])):
            if first < last:
                chosen = order[first:last]
                start, end, parts, kinds, begun, arrived = columns
                yield Track(
                    role=stage,
                    stream=stream,
                    start=start[chosen],
                    end=end[chosen],
                    parts=parts[chosen],
                    transfers=kinds[chosen],
                    begun=begun[chosen],
                    arrived=arrived[chosen],
                )

    def _columns(
        self, rows: Sequence[_Rows], count: int
    ) -> tuple[Floats, Floats, Indices, Indices, Floats, Floats]:
        """Start, end, parts, transfers and when these began and arrived."""
        most = max(len(row.flights) for row in rows)
        kinds = np.full((count, most), NONE, dtype=np.intp)
        begun, arrived = np.full((2, count, most), np.nan)
        parts, first = np.empty(count, dtype=np.intp), 0
        for row in rows:
            here = slice(first, first + len(row.place))
            parts[here] = row.parts
            for column, (kind, begins, arrives) in enumerate(row.flights):
                kinds[here, column], begun[here, column] = kind, begins
                arrived[here, column] = arrives
            first += len(row.place)
        start = np.concatenate([row.start for row in rows])
        end = np.concatenate([row.end for row in rows])
        return start, end, parts, kinds, begun, arrived
