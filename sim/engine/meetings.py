"""Meetings: a transfer starts when all its roles have joined it, and ends for all at once."""

from collections.abc import Callable
from typing import Any

from simpy.events import Event

from sim.engine.events import Clock, carried
from sim.engine.folded import FoldedProgram, Traffic
from sim.engine.network import Network


class DisturbedError(Exception):
    """Other traffic loads a team's links, so its computation cannot be played as one step."""


class Meetings:
    """All transfers of a program: how many roles each awaits, and when each began and ended."""

    def __init__(self, env: Clock, program: FoldedProgram, network: Network) -> None:
        transfers = program.transfers
        self.env, self.network, self.all, self.teams = env, network, transfers, program.teams
        self._missing = [transfer.arity for transfer in transfers]
        self._waiting: dict[int, list[Callable[[Any], Any]]] = {}
        self._moments = {
            number: [0.0] * (2 * len(team.roles)) for number, team in self.teams.items()
        }
        self._within: dict[int, int] = {}
        self.start = [float("nan")] * len(transfers)
        self.end = [float("nan")] * len(transfers)

    def join(self, number: int) -> None:
        """Let one more role join a transfer. The last role starts the traffic."""
        self._missing[number] -= 1
        if self._missing[number] == 0:
            now, traffic = self.env.now, self.all[number].traffic
            self.start[number] = now
            if traffic.size > 0:
                self.network.start(
                    traffic.size, traffic.loads, self._finish, number, traffic.latency
                )
            else:
                self.env.alarm(now + traffic.latency, self._finished, number)

    def _finished(self, latency_is_over: Event) -> None:
        self._finish(carried(latency_is_over))

    def _finish(self, number: int) -> None:
        self.end[number] = self.env.now
        for act in self._waiting.pop(number, ()):
            act(None)

    def begin(self, number: int, role: int, ready: float, host: float) -> None:
        """Let one more role of a team begin its computation, with its device ready at `ready` and
        its host free at `host`.

        Raises `DisturbedError` if all roles have begun and other traffic is on the team's links."""
        team, moments = self.teams[number], self._moments[number]
        place = team.roles.index(role)
        moments[place], moments[place + len(team.roles)] = ready, host
        self._missing[number] -= 1
        if self._missing[number] == 0:
            if not self.network.idle(team.links):
                raise DisturbedError
            self.network.watch(team.links, _disturb)
            self._moments[number] = team.behind(moments)
            self._within[number] = len(team.roles)
            self.start[number] = self.env.now
            self._finish(number)

    def behind(self, number: int, role: int) -> tuple[float, float]:
        """When a role ends a computation that its team has begun, and when its host is free."""
        team, moments = self.teams[number], self._moments[number]
        place = team.roles.index(role)
        return moments[place], moments[place + len(team.roles)]

    def leave(self, number: int) -> None:
        """Let one more role of a team end its computation."""
        self._within[number] -= 1
        if self._within[number] == 0:
            self.network.unwatch(self.teams[number].links, _disturb)

    def ended(self, number: int) -> bool:
        """Whether a transfer is over."""
        return self.end[number] == self.end[number]  # not NaN

    def wait(self, number: int, act: Callable[[Any], Any]) -> None:
        """Call `act` at the end of a transfer that has not ended yet."""
        self._waiting.setdefault(number, []).append(act)

    def alone(self, traffic: Traffic, passed: float = 0.0) -> Event:
        """Put traffic of one role on the network. The event fires when the traffic arrives. It has
        already been under way for `passed` seconds without contention."""
        done = Event(self.env)
        left = traffic.latency - passed
        share = 1.0
        if left < 0.0:
            share += left / traffic.seconds if traffic.seconds > 0.0 else -1.0
        size, latency = traffic.size * share, max(left, 0.0)
        if size > 0.0:
            self.network.start(size, traffic.loads, _succeed, done, latency)
        elif latency:
            self.env.alarm(self.env.now + latency, lambda _: done.succeed())
        else:
            done.succeed()
        return done


def _disturb(_: object) -> None:
    raise DisturbedError


def _succeed(done: Event) -> None:
    done.succeed()
