"""Meetings: a transfer starts when all roles that take part have come, and ends once."""

from collections.abc import Callable, Sequence
from typing import Any

import simpy
from simpy.events import Event

from sim.engine.folded import Traffic, Transfer
from sim.engine.network import Network, carried, then


class Meetings:
    """All transfers of a program: who is still missing, when each began and ended."""

    def __init__(
        self, env: simpy.Environment, transfers: Sequence[Transfer], network: Network
    ) -> None:
        self.env, self.network, self.all = env, network, transfers
        self._missing = [transfer.arity for transfer in transfers]
        self._waiting: dict[int, list[Callable[[Any], Any]]] = {}
        self.start = [float("nan")] * len(transfers)
        self.end = [float("nan")] * len(transfers)

    def join(self, number: int) -> None:
        """One more role has come."""
        self._missing[number] -= 1
        if self._missing[number] == 0:
            self.start[number] = self.env.now
            after_latency = self.env.timeout(self.all[number].traffic.latency, number)
            then(after_latency, self._flow)

    def _flow(self, after_latency: Event) -> None:
        number = carried(after_latency)
        traffic = self.all[number].traffic
        if traffic.size > 0:
            self.network.start(traffic.size, traffic.loads, self._finish, number)
        else:
            self._finish(number)

    def _finish(self, number: int) -> None:
        self.end[number] = self.env.now
        for act in self._waiting.pop(number, ()):
            act(None)

    def ended(self, number: int) -> bool:
        """Whether a transfer is over."""
        return self.end[number] == self.end[number]  # not NaN

    def wait(self, number: int, act: Callable[[Any], Any]) -> None:
        """Call `act` at the end of a transfer that has not ended yet."""
        self._waiting.setdefault(number, []).append(act)

    def alone(self, traffic: Traffic, passed: float = 0.0) -> Event:
        """Fires when traffic of one role arrives that has been alone for `passed` seconds."""
        done = Event(self.env)
        left = traffic.latency - passed
        if left > 0.0:
            then(self.env.timeout(left), lambda _: self._send(traffic, 1.0, done))
        else:
            share = 1.0 + left / traffic.seconds if traffic.seconds > 0.0 else 0.0
            self._send(traffic, share, done)
        return done

    def _send(self, traffic: Traffic, share: float, done: Event) -> None:
        if traffic.size * share > 0.0:
            self.network.start(traffic.size * share, traffic.loads, _succeed, done)
        else:
            done.succeed()


def _succeed(done: Event) -> None:
    done.succeed()
