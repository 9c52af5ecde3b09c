"""Play a folded program on a SimPy clock: the reference for all faster ways to play it."""

from collections.abc import Iterable, Sequence

import numpy as np

from sim.config.counting import polled
from sim.config.errors import InputError
from sim.engine.costs import Parts
from sim.engine.events import Clock
from sim.engine.folded import CommunicateStep, ComputeStep, FoldedProgram
from sim.engine.meetings import Meetings
from sim.engine.network import Network
from sim.engine.record import Record, flights_of
from sim.engine.role_process import Log, RoleProcess
from sim.engine.timeline import Deferred
from sim.engine.tracks import COMMUNICATION, Track, action_row


def play(program: FoldedProgram, *, because: str = "asked for") -> Record:
    """Run every role of a program to its end; the record notes `because` as the reason.

    Raises `InputError` if roles wait for each other in a circle; the message names such a step.
    """
    env, meetings, processes = perform(program)
    return _Recorder(program, meetings).record(env, processes, because)


def perform(program: FoldedProgram) -> tuple[Clock, Meetings, list[RoleProcess]]:
    """Play a program; return clock, transfers and roles at the end. Raises `InputError`."""
    env = Clock()
    network = Network(env, [link.capacity for link in program.links])
    meetings = Meetings(env, program, network)
    processes = [RoleProcess(env, role, meetings) for role in program.roles]
    logs = [log for process in processes for log in process.logs.values()]
    with polled(lambda: sum(log.played for log in logs), total=program.steps, unit="operation"):
        for process in processes:
            process.begin()
        env.run()
    _refuse_deadlock(processes)
    return env, meetings, processes


def end_of(processes: Iterable[RoleProcess]) -> float:
    """When the last step ended. The clock may run beyond this end, to obsolete alarms."""
    ends = (log.end[-1] for process in processes for log in process.logs.values() if log.end)
    return max(ends, default=0.0)


def _refuse_deadlock(processes: Iterable[RoleProcess]) -> None:
    for process in processes:
        for log in process.logs.values():
            if log.played < len(log.steps):
                who, stuck = process.program.role.name, log.steps[log.played].name
                fault = f"{who} waits forever at {stuck!r}"
                raise InputError("plan", fault, "check the schedule")


class _Recorder:
    """Turns the logs of roles into the arrays of a record."""

    def __init__(self, program: FoldedProgram, meetings: Meetings) -> None:
        self.program, self.meetings = program, meetings
        self.parts: list[Parts] = []
        self._rows: dict[int, int] = {}
        self.kinds = list(dict.fromkeys((t.cause, t.kind) for t in program.transfers))
        numbers = {kind: number for number, kind in enumerate(self.kinds)}
        self.of_transfer = [numbers[t.cause, t.kind] for t in program.transfers]

    def record(self, env: Clock, processes: Sequence[RoleProcess], because: str) -> Record:
        tracks = Deferred(
            lambda: [
                self._track(process, stream, log)
                for process in processes
                for stream, log in process.logs.items()
            ]
        )
        parts = Deferred(lambda: self.parts if len(tracks) else [])  # writing tracks fills them
        passes = (
            log.end[n if step.team is None else n + 1]
            for process in processes
            for log in process.logs.values()
            for n, step in enumerate(log.steps)
            if isinstance(step, ComputeStep) and step.action
        )
        return Record(
            roles=tuple(role.role for role in self.program.roles),
            tracks=tracks,
            parts=parts,
            kinds=self.kinds,
            end=end_of(processes),
            passes_end=max(passes, default=0.0),
            steps=self.program.steps,
            program=lambda: self.program,
            events=next(env._eid),  # simpy counts them; it has no public name for the count
            engine="clock",
            because=because,
        )

    def _track(self, process: RoleProcess, stream: str, log: Log) -> Track:
        shape = len(log.steps), flights_of(log.steps)
        transfers = np.full(shape, -1, dtype=np.intp)
        begun, arrived = np.full((2, *shape), np.nan)
        rows = np.full(len(log.steps), COMMUNICATION, dtype=np.intp)
        for n, step in enumerate(log.steps):
            if isinstance(step, CommunicateStep):
                for column, number in enumerate(step.transfers):
                    transfers[n, column] = self.of_transfer[number]
                    # A team's collectives end with its computation: nothing is in flight later.
                    alone = step.team is None
                    begun[n, column] = self.meetings.start[number] if alone else log.end[n]
                    arrived[n, column] = self.meetings.end[number] if alone else log.end[n]
            else:
                rows[n] = self._row(log.parts[n])
        return Track(
            role=process.program.role.index,
            stream=stream,
            start=np.array(log.start),
            end=np.array(log.end),
            parts=rows,
            transfers=transfers,
            begun=begun,
            arrived=arrived,
            actions=np.array(
                [action_row(getattr(step, "action", None)) for step in log.steps], dtype=np.intp
            ).reshape(-1, 3),
        )

    def _row(self, parts: Parts) -> int:
        if id(parts) not in self._rows:
            self._rows[id(parts)] = len(self.parts)
            self.parts.append(parts)
        return self._rows[id(parts)]
