"""How long memory-bound kernels take: a floor each, and bytes over the achievable bandwidth."""

from sim.config.dataclass import dataclass
from sim.config.units import Seconds, Share
from sim.model.kernels import MemoryBound


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBoundRates:
    """Achieved rates of memory-bound kernels: a share of the data sheet's bandwidth, the time of a
    kernel that moves almost nothing (start, ramp and drain), and the `gap` between the end of a
    kernel and the start of the next, which is launched and waits for it. Products are timed from
    end to end, so that their floor holds the gap."""

    bandwidth: Share
    floor: Seconds
    gap: Seconds = 0.0


# Integer operations of one number of Philox4x32-10 (Salmon et al. 2011, section 3.2), torch's
# generator on CUDA: ten rounds of four multiplications, four exclusive-ors and two additions make
# four numbers; conversion, comparison and scaling take about half as much again.
OPERATIONS_PER_RANDOM = 40

# Of an element whose place is computed. 39 on H800 (33.6 million take 84.5 us on 132 SMs at
# 1.83 GHz: elementwise_kernel in deepseek_v3_train_profile.csv), 40 to 43 on H100 where places have
# two or three dimensions, 45 to 50 in copies of four, 54 and 59 in products and sums (traces/
# tracelens, Qwen and TimeSformer), 47 on A100 (kernels/estimate_train_time, fillmask, forward).
OPERATIONS_PER_OFFSET = 42

# Per SM and clock, on every generation from Volta to Hopper (NVIDIA H100 white paper, table 3).
INTEGER_LANES = 64


# Seconds of a turn, two loads of which eight pairs are in flight: LayerNorm's gains on A100
# (pytorch, pull request 87445, forward and backward). Of 8192 and 6144 rows of 1024 and 1536 what
# five passes twice as wide take more in fp32 than in fp16 leaves 49 to 72 us of each for the kernel
# whose threads take rows / 32 turns, whatever the width.
TURN = 0.26e-6


def integer_rate(sms: int, clock: float, lanes: int = INTEGER_LANES) -> float:
    """Integer operations a second.

    >>> f"{integer_rate(108, 1.41e9) / OPERATIONS_PER_RANDOM / 1e9:.0f} billion random numbers"
    '244 billion random numbers'
    """
    return sms * lanes * clock


def memory_bound_time(
    kernel: MemoryBound,
    rates: MemoryBoundRates,
    *,
    bandwidth: float,
    integers: float = float("inf"),
) -> float:
    """Seconds of `kernel.launches` kernels that move `kernel.bytes` in all.

    launches x (floor + gap) + max(bytes / bandwidth, operations / `integers`, turns x TURN), with
    operations for random numbers and for offsets: small kernels are all floor, and the achieved
    bandwidth rises with size to `bandwidth` (B/s).

    >>> rates = MemoryBoundRates(bandwidth=0.9, floor=2e-6)
    >>> memory_bound_time(MemoryBound(name="add", bytes=1.8e9), rates, bandwidth=1.8e12)
    0.001002
    """
    operations = kernel.randoms * OPERATIONS_PER_RANDOM + kernel.strided * OPERATIONS_PER_OFFSET
    moved = max(kernel.bytes / bandwidth, operations / integers, kernel.turns * TURN)
    return kernel.launches * (rates.floor + rates.gap) + moved
