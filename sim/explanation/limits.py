"""What limits a step: how much shorter it is if one resource is faster, by replay or by plays."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sim.config.progress import waited
from sim.engine.replay_shape import TransferClass
from sim.engine.replay_weights import Floats
from sim.explanation.clocked import LATENCY, Clocked, bandwidth
from sim.scenario.setup import Setup
from sim.simulate_recording import Recorded
from sim.uncertainty.draws import split

NAMES = {
    "gemm": "matrix products",
    "attention": "attention kernels",
    "stream": "memory-bound kernels",
    "host": "the host's launches",
    "collective": "collectives inside passes",
}
_TWICE, _FREE = 0.5, 1e-9  # what is left of a resource's seconds
_LEAST = 5e-4  # of a step: what is less is no limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What a step (s) takes where one resource is twice as fast, and where it costs nothing."""

    resource: str
    halved: float
    free: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """A step of `step_time` (s): its limits, the worst first, and those that are left once the
    first is twice as fast."""

    step_time: float
    limits: tuple[Limit, ...]
    then: tuple[Limit, ...]


class Speeds(Protocol):
    """A step whose `kinds` of resources may take so many times as long."""

    @property
    def kinds(self) -> tuple[str, ...]: ...

    def times(self, factors: Floats) -> Floats: ...


@waited("limits")
def limits(setup: Setup | Recorded) -> Limits:
    """Each class of kernels, the host, the latency of messages, and the links by what they are for.

    Durations of a plan's step are columns of one compiled replay, a recorded one is played anew for
    each: everything that waits for what is shorter moves. What kernels lose beside shorter
    transfers is less in a recorded step, and stays as it is in a plan's. Raises `InputError` for a
    step that cannot be replayed.
    """
    own = split(setup, _of_transfer) if isinstance(setup, Setup) else Clocked(setup)
    step, found = _limits(own, np.ones(len(own.kinds)))
    if not found:
        return Limits(step_time=step, limits=(), then=())
    faster = np.ones(len(own.kinds))
    faster[_kind(own.kinds, found[0].resource)] = _TWICE
    _, then = _limits(own, faster)
    others = tuple(one for one in then if one.resource != found[0].resource)
    return Limits(step_time=step, limits=tuple(found), then=others)


def _of_transfer(transfer: TransferClass) -> tuple[str, str]:
    return LATENCY, bandwidth(transfer.cause)


def _limits(own: Speeds, factors: Floats) -> tuple[float, list[Limit]]:
    count = len(own.kinds)
    columns = np.repeat(factors[:, None], 1 + 2 * count, axis=1)
    for kind in range(count):
        columns[kind, 1 + kind] *= _TWICE
        columns[kind, 1 + count + kind] *= _FREE
    step, *times = map(float, own.times(columns))
    found = [
        Limit(resource=NAMES.get(kind, kind), halved=times[n], free=times[count + n])
        for n, kind in enumerate(own.kinds)
    ]
    slowed = [one for one in found if one.free < step * (1.0 - _LEAST)]
    return step, sorted(slowed, key=lambda one: one.halved)


def _kind(kinds: Sequence[str], resource: str) -> int:
    return next(n for n, kind in enumerate(kinds) if NAMES.get(kind, kind) == resource)
