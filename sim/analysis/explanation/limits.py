"""Limits of a step: how much shorter the step is if a resource is faster.

The step's kernels are also compared with the roofline of their device (Williams et al. 2009).
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from sim import questions
from sim.config.dataclass import dataclass
from sim.config.progress import waited
from sim.hardware.device import Device
from sim.kind import Setup
from sim.model.kernels import Attention, Gemm, Kernel, MemoryBound
from sim.program.causes import LOADING
from sim.questions import Floats, KernelCalls, Speeds
from sim.uncertainty.draws import bandwidth

NAMES = {
    "gemm": "matrix products",
    "attention": "attention kernels",
    "stream": "memory-bound kernels",
    "host": "the host's launches",
    "collective": "collectives inside passes",
    bandwidth(LOADING): "loading of samples",
}
_TWICE, _FREE = 0.5, 1e-9  # remaining shares of a resource's seconds
_LEAST = 5e-4  # share of a step; a resource that costs less is no limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The step (s) if the resource is twice as fast (`halved`) or takes no time (`free`)."""

    resource: str
    halved: float
    free: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """A step of `step_time` (s): its limits, the worst first, and the limits that remain when the
    first resource is twice as fast."""

    step_time: float
    limits: tuple[Limit, ...]
    then: tuple[Limit, ...]


@waited("limits")
def limits(setup: Setup) -> Limits:
    """Return the limits of a step: each class of kernels, the host, the latency of messages, and
    the links by the purpose of their bytes.

    For a plan's step, the changed durations are columns of one compiled replay. A recorded step is
    played again for each change. Everything that waits for a shortened operation starts earlier. In
    a recorded step, a shorter transfer slows the kernels beside it less; in a plan's step, these
    kernels lose as much time as before. Raises `InputError` for a step that cannot be replayed.
    """
    speeds = questions.speeds(setup)
    step, found = _limits(speeds, np.ones(len(speeds.kinds)))
    if not found:
        return Limits(step_time=step, limits=(), then=())
    faster = np.ones(len(speeds.kinds))
    faster[_place(speeds.kinds, found[0].resource)] = _TWICE
    _, then = _limits(speeds, faster)
    others = tuple(limit for limit in then if limit.resource != found[0].resource)
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
    slowed = [limit for limit in found if limit.free < step * (1.0 - _LEAST)]
    return step, sorted(slowed, key=lambda limit: limit.halved)


def _place(kinds: Sequence[str], resource: str) -> int:
    return next(n for n, name in enumerate(kinds) if NAMES.get(name, name) == resource)


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """All kernels of a name on a rank of the slowest stage: their `seconds` in a step, the rate
    `reached` (FLOP/s if `bound` is compute, else B/s), and its share of the device's peak."""

    name: str
    seconds: float
    count: int
    reached: float
    of_peak: float
    bound: str


def roofline(setup: Setup) -> list[Roof]:
    """Return the kernels of a step of the stage that computes longest, the longest first."""
    device = setup.machine.topology.device
    stages = [_roofs(calls, device) for calls in questions.kernels(setup)]
    return max(stages, key=lambda found: sum(roof.seconds for roof in found))


def _roofs(calls: Sequence[KernelCalls], device: Device) -> list[Roof]:
    """Return the kernels by name, the longest first."""
    found: defaultdict[str, _Sum] = defaultdict(_Sum)
    for kernel, seconds, often in calls:
        if isinstance(kernel, Gemm | Attention | MemoryBound):
            found[kernel.name].add(kernel, seconds, often)
    return sorted((total.roof(device) for total in found.values()), key=lambda roof: -roof.seconds)


class _Sum:
    def __init__(self) -> None:
        self.seconds, self.flops, self.bytes, self.count = 0.0, 0.0, 0.0, 0
        self.kernel: Kernel | None = None

    def add(self, kernel: Kernel, seconds: float, often: int) -> None:
        self.kernel, self.count = kernel, self.count + often
        self.seconds += often * seconds
        self.flops += often * float(getattr(kernel, "flops", 0.0))
        self.bytes += often * float(getattr(kernel, "bytes", 0.0))

    def roof(self, device: Device) -> Roof:
        kernel = self.kernel
        assert kernel is not None
        rate, peak = self.bytes, device.memory_bandwidth
        bound = "memory"
        if isinstance(kernel, Gemm | Attention):
            peak = device.peak_rate(kernel.precision)
            narrow = self.bytes / device.memory_bandwidth > self.flops / peak
            if isinstance(kernel, Gemm) and narrow:
                peak = device.memory_bandwidth
            else:
                rate, bound = self.flops, "compute"
        reached = rate / self.seconds if self.seconds else 0.0
        return Roof(
            name=kernel.name,
            seconds=self.seconds,
            count=self.count,
            reached=reached,
            of_peak=reached / peak,
            bound=bound,
        )
