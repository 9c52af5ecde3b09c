"""How long a kernel takes on a device, from a calibrated profile or from the device's rates."""

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Literal, NamedTuple

from sim.hardware.device import Device
from sim.hardware.kernels.rates import gemm_time, integer_rate, memory_bound_time
from sim.model.kernels import Attention, Gemm, Kernel, Timed

if TYPE_CHECKING:
    from sim.hardware.kernels.calibrated import Calibrated, ProfiledTime
    from sim.hardware.kernels.profile import Profile


def kernel_time(kernel: Kernel, device: Device, attention: tuple[str, ...] = ("flash2",)) -> float:
    """Seconds for which `device` executes `kernel`, without its launch.

    `attention` names the generations of fused attention that the software offers, best first; the
    first generation that the device knows is taken. Raises `InputError` for a precision or
    generation that the device does not have.

    >>> from sim.hardware import device
    >>> a100 = device.load("a100-80gb-sxm")
    >>> gemm = Gemm(name="qkv", m=8192, n=8192, k=8192, precision="fp16")
    >>> 0.7 < gemm.flops / kernel_time(gemm, a100) / a100.peak_rate("fp16") < 0.9
    True
    """
    return kernel_times(device)(kernel, attention).seconds


class KernelTime(NamedTuple):
    """A kernel's seconds, their source, and the size that is outside of a profile's range."""

    seconds: float
    source: Literal["profile", "model"]
    outside: str = ""


def sourced_time(
    kernel: Kernel, device: Device, attention: tuple[str, ...] = ("flash2",)
) -> KernelTime:
    """The time of a kernel, as `kernel_time` gives it, with its source."""
    return kernel_times(device)(kernel, attention)


def kernel_times(device: Device) -> "KernelTimes":
    """The times of a device's kernels, shared by all devices that are equal to it."""
    return _kernel_times(device, device.measured)


@lru_cache(maxsize=32)
def _kernel_times(device: Device, profile: "Profile | None") -> "KernelTimes":
    return KernelTimes(device, profile)


class KernelTimes:
    """The times of one device's kernels, each computed once."""

    def __init__(self, device: Device, profile: "Profile | None") -> None:
        self.device, self.profile = device, profile
        self.bandwidth = device.memory_bandwidth * device.stream.bandwidth
        self.integers = integer_rate(device.sms, device.clock, device.lanes)
        self._calibrated: dict[tuple[str, ...], Calibrated] = {}
        self._times: dict[tuple[Kernel, tuple[str, ...]], KernelTime] = {}

    def __call__(self, kernel: Kernel, attention: tuple[str, ...]) -> "KernelTime":
        key = (kernel, attention)
        if key not in self._times:
            self._times[key] = self._timed(kernel, attention)
        return self._times[key]

    def _timed(self, kernel: Kernel, attention: tuple[str, ...]) -> "KernelTime":
        if isinstance(kernel, Timed):
            return KernelTime(kernel.seconds, "profile")
        if isinstance(kernel, Gemm) and kernel.parts:
            return self._in_turn(kernel, attention)
        measured = self._measured(self.profile, kernel, attention) if self.profile else None
        if measured is None:
            return KernelTime(self._modelled(kernel, attention), "model")
        return KernelTime(measured.seconds, "profile", measured.outside)

    def _in_turn(self, kernel: Gemm, attention: tuple[str, ...]) -> "KernelTime":
        """The time of a product's parts in turn, from a profile if it has all parts."""
        parts = [(self(part, attention), often) for part, often in kernel.parts]
        return KernelTime(
            sum(part.seconds * often for part, often in parts),
            "profile" if all(part.source == "profile" for part, _ in parts) else "model",
            next((part.outside for part, _ in parts if part.outside), ""),
        )

    def _measured(
        self, profile: "Profile", kernel: Kernel, attention: tuple[str, ...]
    ) -> "ProfiledTime | None":
        if attention not in self._calibrated:
            from sim.hardware.kernels.calibrated import Calibrated  # imports numpy

            modelled = partial(self._modelled, attention=attention)
            generation = next((name for name in attention if name in self.device.attention), "none")
            self._calibrated[attention] = Calibrated(profile, modelled, generation)
        return self._calibrated[attention](kernel)

    def _modelled(self, kernel: Kernel, attention: tuple[str, ...]) -> float:
        device, bandwidth = self.device, self.bandwidth
        if isinstance(kernel, Gemm):
            peak = kernel.speed * device.product_rate(kernel.precision)
            read = device.product_bandwidth
            product = gemm_time(kernel, device.gemm, peak=peak, sms=device.sms, bandwidth=read)
            return product + kernel.copied / bandwidth
        if isinstance(kernel, Attention):
            from sim.hardware.kernels import fused_attention  # not all stacks have it

            floor = kernel.launches * device.stream.floor
            return floor + fused_attention.seconds(kernel, device, attention, bandwidth)
        bandwidth *= kernel.rate
        if kernel.ctas:  # each CTA saturates one SM's share of the bandwidth
            bandwidth *= min(1.0, kernel.ctas / device.sms)
        return memory_bound_time(kernel, device.stream, bandwidth=bandwidth, integers=self.integers)
