"""Play a score on a SimPy clock: the reference that everything faster must agree with."""

from collections.abc import Iterable, Iterator, Sequence

import simpy
from simpy.events import Event

from sim.config.errors import InputError
from sim.engine.folded import Meet, Pass, Score, Step, Transfer
from sim.engine.network import Network, carried, then
from sim.engine.timeline import Span, Timeline
from sim.engine.worker import Worker


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
        then(after_latency, self._flow if transfer.size > 0 else self._arrived)

    def _flow(self, after_latency: Event) -> None:
        number = carried(after_latency)
        transfer = self.all[number]
        self.network.start(transfer.size, transfer.loads, self._finish, number)

    def _arrived(self, after_latency: Event) -> None:
        self._finish(carried(after_latency))

    def _finish(self, number: int) -> None:
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
    env, transfers, workers = perform(score)
    writer = Writer(score.transfers, transfers.start, transfers.end)
    logs = ((worker.part.role.index, worker.log) for worker in workers)
    return Timeline(
        roles=tuple(part.role for part in score.parts),
        spans=[span for role, log in logs for span in writer.spans(role, log)],
        end=end_of(workers),
        events=next(env._eid),  # simpy counts them; it has no public name for the count
    )


def perform(score: Score) -> tuple[simpy.Environment, Transfers, list[Worker]]:
    """The clock, transfers and workers after the last event; raises as `play` does."""
    env = simpy.Environment()
    network = Network(env, [link.capacity for link in score.links])
    transfers = Transfers(env, score, network)
    workers = [Worker(env, part, transfers) for part in score.parts]
    env.run()
    _refuse_deadlock(workers)
    return env, transfers, workers


def end_of(workers: Sequence[Worker]) -> float:
    """When the last step ended; the clock itself may run on to alarms that nobody needs."""
    return max((worker.log[-1][2] for worker in workers if worker.log), default=0.0)


def _refuse_deadlock(workers: list[Worker]) -> None:
    for worker in workers:
        if len(worker.log) < worker.part.steps:
            ended = {step.index for step, *_ in worker.log}
            steps = (s for stream in worker.part.streams.values() for s in stream)
            stuck = next(step.name for step in steps if step.index not in ended)
            raise InputError(
                "plan", f"{worker.part.role.name} waits forever at {stuck!r}", "check the schedule"
            )


class Writer:
    """Turns logged steps into spans; facts that many spans share are built once."""

    def __init__(
        self, transfers: Sequence[Transfer], start: Sequence[float], end: Sequence[float]
    ) -> None:
        self.transfers, self.start, self.end = transfers, start, end
        self._facts: dict[int, dict[str, object]] = {}

    def spans(self, role: int, log: Iterable[tuple[Step, float, float, str]]) -> Iterator[Span]:
        for step, start, end, stream in log:
            if isinstance(step, Pass):
                cause = step.parts[0][0] if step.parts else "compute"
                yield Span(role, stream, step.name, cause, start, end, _pass_args(step))
            else:
                cause, args = self._met(step)
                yield Span(role, stream, step.name, cause, start, end, args)

    def _met(self, step: Meet) -> tuple[str, dict[str, object]]:
        if not step.transfers:
            return "none", {"transfers": ()}
        of = self.transfers
        flights = tuple(
            (of[n].cause, of[n].kind, self.start[n], self.end[n]) for n in step.transfers
        )
        return flights[-1][0], {"transfers": flights, **self._fact(step.transfers[-1])}

    def _fact(self, number: int) -> dict[str, object]:
        if number not in self._facts:
            transfer = self.transfers[number]
            self._facts[number] = {
                "kind": transfer.kind,
                "bytes": transfer.bytes,
                "ranks": transfer.ranks,
                "algorithm": transfer.algorithm,
                "protocol": transfer.protocol,
            }
        return self._facts[number]


def _pass_args(step: Pass) -> dict[str, object]:
    return {
        "phase": step.phase,
        "microbatch": step.microbatch,
        "chunk": step.chunk,
        "parts": step.parts,
    }
