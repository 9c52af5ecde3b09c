"""How long a matrix product takes: tiles in waves over the SMs, power, memory.

cuBLAS cuts the result into tiles, one a CTA; CTAs fill the SMs in waves, and a last wave that is
not full costs as much as a full one (NVIDIA, Matrix Multiplication Background User's Guide,
"Tile Quantization" and "Wave Quantization"). Long products run into the power limit, which lowers
the clock until the board's watts are met.
"""

import math
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated

from annotated_types import Ge

from sim.config.errors import InputError
from sim.config.units import Seconds
from sim.model.kernels import Gemm

# CTA tiles that cuBLAS and CUTLASS offer (Matrix Multiplication Background User's Guide, "Tile
# Quantization Effect": 256x128, 128x128, 256x64, 128x64, 64x64), and their transposes.
TILES = ((256, 128), (128, 256), (128, 128), (256, 64), (64, 256), (128, 64), (64, 128), (64, 64))

# Numbers of CTAs that may share a product's k (split-k), and the shortest share worth it.
SPLITS, SHORTEST_SPLIT = (1, 2, 3, 4, 6, 8), 256

# The transition between quantisation and the power limit is smooth (a part-filled wave draws less
# power, so its clock is higher): the two times are joined by a norm of this order.
SHARPNESS = 12


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
        for share in (getattr(self, field.name) for field in fields(self)):
            if share is not None and not 0 < share <= 1.2:
                raise ValueError(f"a share of the peak of {share} is outside (0, 1.2]")

    def of(self, precision: str) -> float:
        """The share for a precision, by default that of fp16."""
        share: float | None = getattr(self, precision) or self.fp16
        if share is None:
            raise InputError(
                "gemm.sustained", f"no share for {precision}", f"add {precision} = ..."
            )
        return share


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmRates:
    """Achieved rates of matrix products on a device, the `[gemm]` table of its file.

    `sustained` is the share of the peak that the power limit leaves a large product. In the inner
    loop, while power allows the full clock, SMs run `burst` times as fast, at most at the peak.
    Tensor-core tiles of half and a quarter of the largest's area reach `half_tile` and
    `quarter_tile` of that: they load more operand bytes per multiplication. `prologue` is a CTA's
    time outside the inner loop, `epilogue` the share of the result's memory traffic that no other
    CTA hides, `floor` the time of an empty kernel. `misaligned` is the share of the rate at which
    single products run whose rows do not begin at multiples of 16 bytes, as those of a vocabulary
    that is not padded.
    """

    sustained: Shares
    burst: float
    half_tile: float
    quarter_tile: float
    prologue: Seconds
    epilogue: Annotated[float, Ge(0)]
    floor: Seconds
    misaligned: float = 1.0

    def tile_share(self, area: int) -> float:
        """Inner-loop rate of a tensor-core tile against the largest's."""
        if area >= 256 * 128:
            return 1.0
        if area >= 128 * 128:
            return self.half_tile
        return self.quarter_tile if area >= 128 * 64 else 0.8 * self.quarter_tile


def gemm_time(gemm: Gemm, rates: GemmRates, *, peak: float, sms: int, bandwidth: float) -> float:
    """Seconds of a product on an otherwise idle device.

    floor + epilogue + max(tiles in waves, FLOPs at the power limit, prologue + bytes / bandwidth),
    where `peak` is the data-sheet FLOP/s of its precision and `bandwidth` what memory achieves
    (B/s).
    """
    share, peak = rates.sustained.of(gemm.precision), peak * _tensor_cores(gemm, rates)
    clocked = peak * min(share * rates.burst, max(share, 1.0)) / sms
    joined = _joined(gemm.flops / (peak * share), _waves(gemm, rates, clocked, sms, bandwidth))
    return float(
        rates.floor
        + rates.epilogue * gemm.result_bytes / bandwidth
        + max(joined, rates.prologue + gemm.bytes / bandwidth)
    )


def _tensor_cores(gemm: Gemm, rates: GemmRates) -> float:
    """The share of the rate that the alignment of a 16-bit product's rows leaves."""
    wide = gemm.precision in ("fp16", "bf16") and not gemm.pads
    if not wide or not (gemm.n % ALIGNED or gemm.k % ALIGNED):
        return 1.0
    return MISALIGNED if gemm.batch > 1 else rates.misaligned


def _joined(power_bound: float, wave_bound: float) -> float:
    large = max(power_bound, wave_bound)
    if not large:
        return 0.0  # nothing is multiplied
    ratio = min(power_bound, wave_bound) / large
    return float(large * (1.0 + ratio**SHARPNESS) ** (1.0 / SHARPNESS))


def _waves(gemm: Gemm, rates: GemmRates, sm: float, sms: int, bandwidth: float) -> float:
    """The fastest of the tilings: waves x (inner loop + prologue) + the sum of split-k's parts,
    with `sm` an SM's FLOP/s in the inner loop."""
    best = math.inf
    for rows, columns in TILES:
        tiles = gemm.batch * math.ceil(gemm.m / rows) * math.ceil(gemm.n / columns)
        # Products of fp32 run on CUDA cores, whose operands are reused from registers.
        share = 1.0 if gemm.precision == "fp32" else rates.tile_share(rows * columns)
        rate = sm * share
        for splits in _splits(gemm.k):
            loop = 2.0 * rows * columns * (gemm.k / splits) / rate
            waves = math.ceil(tiles * splits / sms)
            best = min(best, waves * (loop + rates.prologue) + _sum(gemm, splits) / bandwidth)
    return best


@cache
def _splits(k: int) -> tuple[int, ...]:
    return tuple(splits for splits in SPLITS if splits == 1 or k >= splits * SHORTEST_SPLIT)


def _sum(gemm: Gemm, splits: int) -> float:
    """Bytes of split-k's fp32 partial results, which are written and read once more."""
    return 0.0 if splits == 1 else 4.0 * (splits + 1) * gemm.batch * gemm.m * gemm.n
