"""Limits of a step: how much shorter it is if one resource is faster, by replay or by plays."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sim import kind
from sim.config.progress import waited
from sim.kind import Floats, Setup, Speeds

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
    """The step (s) if one resource is twice as fast, and if it costs nothing."""

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


@waited("limits")
def limits(setup: Setup) -> Limits:
    """Each class of kernels, the host, the latency of messages, and the links by what they are for.

    Durations of a plan's step are columns of one compiled replay, a recorded one is played anew for
    each: everything that waits for what is shorter moves. What kernels lose beside shorter
    transfers is less in a recorded step, and stays as it is in a plan's. Raises `InputError` for a
    step that cannot be replayed.
    """
    speeds = kind.speeds(setup)
    step, found = _limits(speeds, np.ones(len(speeds.kinds)))
    if not found:
        return Limits(step_time=step, limits=(), then=())
    faster = np.ones(len(speeds.kinds))
    faster[_place(speeds.kinds, found[0].resource)] = _TWICE
    _, then = _limits(speeds, faster)
    others = tuple(one for one in then if one.resource != found[0].resource)
    return Limits(step_time=step, limits=tuple(found), then=others)


def _limits(speeds: Speeds, factors: Floats) -> tuple[float, list[Limit]]:
    count = len(speeds.kinds)
    columns = np.repeat(factors[:, None], 1 + 2 * count, axis=1)
    for number in range(count):
        columns[number, 1 + number] *= _TWICE
        columns[number, 1 + count + number] *= _FREE
    step, *times = map(float, speeds.times(columns))
    found = [
        Limit(resource=NAMES.get(name, name), halved=times[n], free=times[count + n])
        for n, name in enumerate(speeds.kinds)
    ]
    slowed = [one for one in found if one.free < step * (1.0 - _LEAST)]
    return step, sorted(slowed, key=lambda one: one.halved)


def _place(kinds: Sequence[str], resource: str) -> int:
    return next(n for n, name in enumerate(kinds) if NAMES.get(name, name) == resource)
