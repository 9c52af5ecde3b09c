"""How long memory-bound kernels take: bytes over achievable bandwidth, and a floor each."""

from dataclasses import dataclass

from sim.model.kernel import Stream
from sim.units import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRates:
    """What memory-bound kernels achieve: a share of the data sheet's bandwidth, and the time of a
    kernel that moves next to nothing (start, ramp and drain)."""

    bandwidth: float
    floor: Seconds

    def __post_init__(self) -> None:
        if not 0 < self.bandwidth <= 1:
            raise ValueError(f"bandwidth = {self.bandwidth} is a share of the peak, in (0, 1]")


def stream_time(kernel: Stream, rates: StreamRates, *, bandwidth: float) -> float:
    """Seconds of `kernel.launches` kernels that move `kernel.bytes` in all.

    launches x floor + bytes / bandwidth: small kernels are all floor, and the achieved bandwidth
    rises with size to `bandwidth` (B/s).

    >>> rates = StreamRates(bandwidth=0.9, floor=2e-6)
    >>> stream_time(Stream(name="add", bytes=1.8e9), rates, bandwidth=1.8e12)
    0.001002
    """
    return kernel.launches * rates.floor + kernel.bytes / bandwidth
