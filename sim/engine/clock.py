"""Play a score on a SimPy clock: the reference that everything faster must agree with."""

import simpy
from simpy.events import Event

from sim.engine.network import Network, carried, then
from sim.engine.score import Meet, Part, Pass, Score, Transfer
from sim.engine.trace import Span, Timeline
from sim.engine.worker import Worker
from sim.errors import InputError


class Transfers:
    """Meeting points: a transfer starts when all its roles have joined, and ends once."""

    def __init__(self, env: simpy.Environment, score: Score, network: Network) -> None:
        self.env, self.network, self.all = env, network, score.transfers
        self._missing = [transfer.arity for transfer in score.transfers]
        self._done: list[Event | None] = [None] * len(score.transfers)
        self.start = [float("nan")] * len(score.transfers)
        self.end = [float("nan")] * len(score.transfers)

    def join(self, number: int) -> None:
        self._missing[number] -= 1
        if self._missing[number] == 0:
            self._begin(number)

    def _begin(self, number: int) -> None:
        transfer = self.all[number]
        self.start[number] = self.env.now
        after_latency = self.env.timeout(transfer.latency, number)
        then(after_latency, self._flow if transfer.size > 0 else self._finish)

    def _flow(self, after_latency: Event) -> None:
        transfer = self.all[carried(after_latency)]
        arrival = Event(self.env)
        then(arrival, self._finish)
        self.network.start(transfer.size, transfer.loads, arrival, carried(after_latency))

    def _finish(self, arrival: Event) -> None:
        number = carried(arrival)
        self.end[number] = self.env.now
        waiting = self._done[number]
        if waiting is not None:
            waiting.succeed()

    def ended(self, number: int) -> bool:
        return self.end[number] == self.end[number]  # not NaN

    def done(self, number: int) -> Event:
        """Fires at the end of a transfer that has not ended yet."""
        waiting = self._done[number]
        if waiting is None:
            waiting = self._done[number] = Event(self.env)
        return waiting


def play(score: Score) -> Timeline:
    """Run every role of a score to its end.

    Raises `InputError` where roles wait for each other in a circle, naming what they wait for.
    """
    env = simpy.Environment()
    network = Network(env, [link.capacity for link in score.links])
    transfers = Transfers(env, score, network)
    workers = [Worker(env, part, transfers) for part in score.parts]
    env.run()
    _refuse_deadlock(workers)
    spans = [span for worker in workers for span in _spans(worker, transfers)]
    return Timeline(roles=tuple(part.role for part in score.parts), spans=spans, end=float(env.now))


def _refuse_deadlock(workers: list[Worker]) -> None:
    for worker in workers:
        if len(worker.log) < worker.part.steps:
            ended = {step.index for step, *_ in worker.log}
            steps = (s for stream in worker.part.streams.values() for s in stream)
            stuck = next(step.name for step in steps if step.index not in ended)
            raise InputError(
                "plan", f"{worker.part.role.name} waits forever at {stuck!r}", "check the schedule"
            )


def _spans(worker: Worker, transfers: Transfers) -> list[Span]:
    return [
        _pass_span(worker.part, step, start, end, stream)
        if isinstance(step, Pass)
        else _meet_span(worker.part, step, start, end, stream, transfers)
        for step, start, end, stream in worker.log
    ]


def _pass_span(part: Part, step: Pass, start: float, end: float, stream: str) -> Span:
    args = {
        "phase": step.phase,
        "microbatch": step.microbatch,
        "chunk": step.chunk,
        "parts": step.parts,
    }
    cause = step.parts[0][0] if step.parts else "compute"
    return Span(part.role.index, stream, step.name, cause, start, end, args)


def _meet_span(
    part: Part, step: Meet, start: float, end: float, stream: str, transfers: Transfers
) -> Span:
    met = [(transfers.all[n], transfers.start[n], transfers.end[n]) for n in step.transfers]
    args: dict[str, object] = {
        "transfers": tuple((t.cause, t.kind, begin, end) for t, begin, end in met)
    }
    args |= _facts(met[-1][0]) if met else {}
    cause = met[-1][0].cause if met else "none"
    return Span(part.role.index, stream, step.name, cause, start, end, args)


def _facts(transfer: Transfer) -> dict[str, object]:
    return {
        "kind": transfer.kind,
        "bytes": transfer.bytes,
        "ranks": transfer.ranks,
        "algorithm": transfer.algorithm,
        "protocol": transfer.protocol,
    }
