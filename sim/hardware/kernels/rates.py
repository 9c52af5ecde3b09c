"""How long a kernel takes at the rates of a device.

The time of a matrix product follows from tiles in waves over the SMs, from power and from memory.
Fused attention runs at a share of the peak that depends on its generation (FlashAttention 1, 2, 3,
cuDNN). A memory-bound kernel takes a floor plus its bytes divided by the bandwidth.

cuBLAS cuts the result into tiles, one for each CTA, and CTAs fill the SMs in waves. A last wave
that is not full takes as long as a full wave (NVIDIA, Matrix Multiplication Background User's
Guide, "Tile Quantization" and "Wave Quantization"), unless persistent CTAs share the tiles evenly.
"""

import math
from collections.abc import Mapping
from dataclasses import field, fields
from functools import cache
from typing import Annotated

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.units import Ge, Le, Seconds, Share
from sim.model.kernels import Gemm, MemoryBound

# CTA tiles that cuBLAS and CUTLASS offer (Matrix Multiplication Background User's Guide, "Tile
# Quantization Effect": 256x128, 128x128, 256x64, 128x64, 64x64), and their transposes.
TILES = ((256, 128), (128, 256), (128, 128), (256, 64), (64, 256), (128, 64), (64, 128), (64, 64))

# Numbers of CTAs that may share a product's k (split-k), and the shortest share of k that is used.
SPLITS, SHORTEST_SPLIT = (1, 2, 3, 4, 6, 8, 16, 32, 64, 128), 256

# A product whose multiplications take about as long as its reads waits for both in turn. A norm of
# this order joins the two times. Of orders 2 to 12 it fits A100, H100, B200 best (docs/kernels.md).
ORDER = 4


# Strided batches of matrices whose rows do not begin at multiples of 16 bytes run without tensor
# cores (NVIDIA, Matrix Multiplication Background User's Guide, "Tensor Core Requirements"), at a
# quarter of their 16-bit rate (V100 white paper, table 1: 31.4 of 125 TFLOP/s; A100 white paper,
# table 4: 78 of 312). In bloom_a100_tuning.csv heads of 150 cost 20 % of a step, of 144 nothing.
ALIGNED, MISALIGNED = 8, 0.25  # elements, share of the rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """A fraction of the data-sheet peak, by precision of the operands."""

    fp32: float | None = None
    tf32: float | None = None
    fp16: float | None = None
    bf16: float | None = None
    fp8: float | None = None
    fp4: float | None = None

    def __post_init__(self) -> None:
        for share in (getattr(self, key.name) for key in fields(self)):
            if share is not None and not 0 < share <= 1.2:
                raise ValueError(f"a share of {share} of the peak is outside (0, 1.2]")

    def of(self, precision: str) -> float:
        """The share for a precision; the share for fp16 where the precision has none."""
        share: float | None = getattr(self, precision) or self.fp16
        if share is None:
            raise InputError("gemm.full", f"no share for {precision}", f"add {precision} = ...")
        return share


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmRates:
    """Achieved rates of matrix products on a device, the `[gemm]` table of its file.

    Inner loops run at the share `full` of the peak at the full clock. Tensor-core tiles of half and
    a quarter of the largest area reach `half_tile` and `quarter_tile` of that rate: they load more
    operand bytes per multiplication. `persistent` is the share of the last wave's idle SMs that
    persistent CTAs (stream-K) put to work. `prologue` is a CTA's time outside the inner loop.
    `epilogue` is the share of the result's memory traffic that no other CTA hides; `accumulation`
    is this share for results that are added to values in memory (default: the same share). `floor`
    is the time of an empty kernel. `misaligned` is the share of the rate that single products keep
    if their rows do not begin at multiples of 16 bytes, as with a vocabulary that is not padded;
    `gathered` is this share for products whose operands do not lie along k. `bandwidth` is the
    share of the data sheet's memory bandwidth at which operands are read, by default the share in
    `[stream]`.
    """

    full: Shares
    half_tile: float
    quarter_tile: float
    persistent: Annotated[float, Ge(0), Le(1)] = 0.0
    prologue: Seconds
    epilogue: Annotated[float, Ge(0)]
    floor: Seconds
    accumulation: Annotated[float, Ge(0)] | None = None
    misaligned: float = 1.0
    gathered: Shares = Shares(fp16=0.85)  # cuDNN on V100 in fp32, on A100 in TF32: docs/kernels.md
    bandwidth: Share | None = None

    def tile_share(self, area: int) -> float:
        """Inner-loop rate of a tensor-core tile relative to the largest tile."""
        if area >= 256 * 128:
            return 1.0
        if area >= 128 * 128:
            return self.half_tile
        return self.quarter_tile if area >= 128 * 64 else 0.8 * self.quarter_tile


def gemm_time(gemm: Gemm, rates: GemmRates, *, peak: float, sms: int, bandwidth: float) -> float:
    """Seconds of a product on an otherwise idle device.

    floor + exposed result / bandwidth + |tiles in waves, prologue + bytes / bandwidth|; |a, b| is
    the norm (a^4 + b^4)^(1/4). `peak` are the FLOP/s of the precision at the clock that the device
    holds, and `bandwidth` is the achieved memory bandwidth (B/s).
    """
    share = rates.full.of(gemm.precision) * _tensor_cores(gemm, rates)
    if gemm.gathered:
        share /= 1.0 + gemm.gathered * (1.0 / rates.gathered.of(gemm.precision) - 1.0)
    compute = _waves(gemm, rates, peak * share / sms, sms, bandwidth)
    memory = rates.prologue + gemm.bytes / bandwidth
    exposed = rates.epilogue
    if gemm.accumulate and rates.accumulation is not None:
        exposed = rates.accumulation
    written = exposed * gemm.result_bytes / bandwidth
    return float(rates.floor + written + norm(compute, memory))


def _tensor_cores(gemm: Gemm, rates: GemmRates) -> float:
    """The share of the rate that the alignment of its rows leaves a product; 1 if aligned."""
    wide = gemm.precision in ("fp16", "bf16") and not gemm.pads
    if not wide or not (gemm.n % ALIGNED or gemm.k % ALIGNED):
        return 1.0
    return MISALIGNED if gemm.batch > 1 else rates.misaligned


def norm(left: float, right: float) -> float:
    """The norm of order `ORDER` of two times: about the larger time if the other is much smaller.

    >>> round(norm(1.0, 1.0), 3), round(norm(3.0, 1.0), 3), norm(0.0, 0.0)
    (1.189, 3.009, 0.0)
    """
    large = max(left, right)
    if not large:
        return 0.0  # nothing is multiplied
    ratio = min(left, right) / large
    return float(large * (1.0 + ratio**ORDER) ** (1.0 / ORDER))


def _waves(gemm: Gemm, rates: GemmRates, sm: float, sms: int, bandwidth: float) -> float:
    """Seconds of the fastest tiling: waves x (inner loop + prologue) + the time to add split-k's
    parts. An SM runs the inner loop at `sm` FLOP/s."""
    best = math.inf
    for rows, columns in TILES:
        tiles = gemm.batch * math.ceil(gemm.m / rows) * math.ceil(gemm.n / columns)
        # Products of fp32 run on CUDA cores, whose operands are reused from registers.
        share = 1.0 if gemm.precision == "fp32" else rates.tile_share(rows * columns)
        rate = sm * share
        for splits in _splits(gemm.k, gemm.splits):
            loop = 2.0 * rows * columns * (gemm.k / splits) / rate
            even = max(1.0, tiles * splits / sms) if tiles else 0.0
            waves = math.ceil(even) + rates.persistent * (even - math.ceil(even))
            best = min(best, waves * (loop + rates.prologue) + _sum(gemm, splits) / bandwidth)
    return best


@cache
def _splits(k: int, most: int) -> tuple[int, ...]:
    return tuple(n for n in SPLITS if n == 1 or (n <= most and k >= n * SHORTEST_SPLIT))


def _sum(gemm: Gemm, splits: int) -> float:
    """Bytes of split-k's fp32 partial results, which are written and read once more."""
    return 0.0 if splits == 1 else 4.0 * (splits + 1) * gemm.batch * gemm.m * gemm.n


# Keys per CTA of the backward pass, and queries per CTA of the forward pass unless stated otherwise
# (flash-attention, csrc/flash_attn/src/flash_fwd_launch_template.h and flash_bwd_...).
ROWS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class LowRates:
    """Shares of the peak in eight bits, by head size."""

    forward: Mapping[int, float]
    backward: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionRates:
    """Share of the 16-bit peak that a kernel generation sustains, by head size.

    Kernels are compiled for heads of multiples of 32 and pad other heads (flash-attention,
    csrc/flash_attn/src: 32, 64, 96, 128, 192, 256). Between two sizes the rate is interpolated.
    Below the smallest size it falls in proportion, because a smaller head has as many exponentials.
    Only multiplications that are performed count (half of them when causal). `fp8` holds the shares
    of the eight-bit peak, for a generation with eight-bit kernels. `rows` is the number of queries
    of one CTA of the forward pass. The last SM finishes later than if the work were spread evenly,
    by the time of `tail` CTAs of the longest kind. `granule` is how many keys a causal mask skips
    at a time; the granules on the diagonal are multiplied in full. With a window, queries of a CTA
    see different keys, and the CTA goes through all of these keys. The keys beyond the window are
    as many as the CTA's queries, or `overrun` if that is more. `prologue` is a CTA's time outside
    its inner loop in the forward pass. Kernels for inference alone have no `backward`.
    """

    forward: Mapping[int, float]
    backward: Mapping[int, float] = field(default_factory=dict)
    prologue: Seconds = 0.0
    rows: int = ROWS
    tail: Annotated[float, Ge(0)] = 0.5
    granule: int = 0
    overrun: int = 0
    fp8: LowRates | None = None

    def __post_init__(self) -> None:
        low = (self.fp8.forward, self.fp8.backward) if self.fp8 else ()
        if not self.forward:
            raise ValueError("forward holds no share")
        for shares in (self.forward, self.backward, *low):
            if not all(size > 0 and 0 < share <= 1 for size, share in shares.items()):
                raise ValueError("shares must lie in (0, 1], by positive head size")

    def __hash__(self) -> int:
        shares = frozenset(self.forward.items()), frozenset(self.backward.items())
        kernel = (self.prologue, self.rows, self.tail, self.granule, self.fp8 is None)
        return hash((*shares, *kernel))


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBoundRates:
    """Achieved rates of memory-bound kernels: `bandwidth` is a share of the data sheet's bandwidth,
    `floor` the time of a kernel that moves almost nothing (start, ramp and drain). `gap` is the
    time from the end of a kernel to the start of the next kernel, which is already launched.
    Products are timed from end to end, so their floor includes the gap."""

    bandwidth: Share
    floor: Seconds
    gap: Seconds = 0.0


# Integer operations of one number of Philox4x32-10 (Salmon et al. 2011, section 3.2), torch's
# generator on CUDA: ten rounds of four multiplications, four exclusive-ors and two additions make
# four numbers; conversion, comparison and scaling take about half as much again.
OPERATIONS_PER_RANDOM = 40

# Integer operations of an element whose offset in memory is computed. H800 takes 39 (33.6 million
# take 84.5 us on 132 SMs at 1.83 GHz: elementwise_kernel in deepseek_v3_train_profile.csv). H100
# takes 40 to 43 for offsets of two or three dimensions and 45 to 50 for copies of four. It takes
# 54 and 59 in products and sums (traces/tracelens, Qwen and TimeSformer). A100 takes 47
# (kernels/estimate_train_time, fillmask, forward).
OPERATIONS_PER_OFFSET = 42

# Integer operations per SM and clock, from Volta to Hopper (NVIDIA H100 white paper, table 3).
INTEGER_LANES = 64


# Seconds of a turn of a thread's loop: a pair of loads, with eight pairs in flight. It follows from
# LayerNorm's gains on A100, for 8192 and 6144 rows of 1024 and 1536 (pytorch, pull request 87445).
# Five sweeps over the data explain the difference of fp32 and fp16, and leave 49 to 72 us for a
# kernel. Its threads take rows / 32 turns, whatever the width.
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
    operations for random numbers and for offsets. A small kernel takes little more than the floor,
    and the achieved bandwidth rises with size to `bandwidth` (B/s).

    >>> rates = MemoryBoundRates(bandwidth=0.9, floor=2e-6)
    >>> memory_bound_time(MemoryBound(name="add", bytes=1.8e9), rates, bandwidth=1.8e12)
    0.001002
    """
    operations = kernel.randoms * OPERATIONS_PER_RANDOM + kernel.strided * OPERATIONS_PER_OFFSET
    moved = max(kernel.bytes / bandwidth, operations / integers, kernel.turns * TURN)
    return kernel.launches * (rates.floor + rates.gap) + moved
