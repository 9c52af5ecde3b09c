"""The kernels of a step against the roofline of their device (Williams et al. 2009)."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from sim import kind
from sim.hardware.device import Device
from sim.kind import KernelCalls, Setup
from sim.model.kernels import Attention, Gemm, Kernel, MemoryBound


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """Kernels of one name on a rank of the slowest stage: their seconds a step, and what of the
    device's peak they reach, of its products (`flops`) or of its memory's bandwidth."""

    name: str
    seconds: float
    count: int
    reached: float
    of_peak: float
    bound: str


def roofline(setup: Setup) -> list[Roof]:
    """The kernels of one step of the stage that computes longest, the longest first."""
    device = setup.machine.topology.device
    stages = [_roofs(calls, device) for calls in kind.kernels(setup)]
    return max(stages, key=lambda found: sum(own.seconds for own in found))


def _roofs(calls: Sequence[KernelCalls], device: Device) -> list[Roof]:
    """Kernels by their names, the longest first."""
    found: defaultdict[str, _Sum] = defaultdict(_Sum)
    for kernel, seconds, often in calls:
        if isinstance(kernel, Gemm | Attention | MemoryBound):
            found[kernel.name].add(kernel, seconds, often)
    return sorted((own.roof(device) for own in found.values()), key=lambda one: -one.seconds)


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
