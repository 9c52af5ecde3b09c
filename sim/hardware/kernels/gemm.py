"""How long a matrix product takes: tiles in waves over the SMs, power, memory.

cuBLAS cuts the result into tiles, one a CTA; CTAs fill the SMs in waves, and a last wave that is
not full costs as much as a full one (NVIDIA, Matrix Multiplication Background User's Guide,
"Tile Quantization" and "Wave Quantization"), unless persistent CTAs deal the tiles out evenly.
"""

import math
from dataclasses import fields
from functools import cache
from typing import Annotated

from sim.config.bounds import Ge, Le
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.units import Seconds, Share
from sim.model.kernels import Gemm

# CTA tiles that cuBLAS and CUTLASS offer (Matrix Multiplication Background User's Guide, "Tile
# Quantization Effect": 256x128, 128x128, 256x64, 128x64, 64x64), and their transposes.
TILES = ((256, 128), (128, 256), (128, 128), (256, 64), (64, 256), (128, 64), (64, 128), (64, 64))

# Numbers of CTAs that may share a product's k (split-k), and the shortest share worth it.
SPLITS, SHORTEST_SPLIT = (1, 2, 3, 4, 6, 8, 16, 32, 64, 128), 256

# A product that multiplies and reads for about as long waits for either in turn: the two times are
# joined by a norm of this order, the best of 2 to 12 on A100, H100 and B200 (docs/kernels.md).
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
        for share in (getattr(self, field.name) for field in fields(self)):
            if share is not None and not 0 < share <= 1.2:
                raise ValueError(f"a share of the peak of {share} is outside (0, 1.2]")

    def of(self, precision: str) -> float:
        """The share for a precision, by default that of fp16."""
        share: float | None = getattr(self, precision) or self.fp16
        if share is None:
            raise InputError("gemm.full", f"no share for {precision}", f"add {precision} = ...")
        return share


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmRates:
    """Achieved rates of matrix products on a device, the `[gemm]` table of its file.

    `full` is the share of the peak at which inner loops run at the full clock. Tensor-core tiles of
    half and a quarter of the largest's area reach `half_tile` and `quarter_tile` of that: they load
    more operand bytes per multiplication. `persistent` is the share of the last wave's idle SMs
    that persistent CTAs (stream-K) put to work. `prologue` is a CTA's time outside the inner loop,
    `epilogue` the share of the result's memory traffic that no other CTA hides, `accumulation` that
    of results which are added to what memory holds (by default the same), `floor` the time of an
    empty kernel. `misaligned` is the share of the rate at which single products run whose rows do
    not begin at multiples of 16 bytes, as those of a vocabulary that is not padded, `gathered` that
    of products whose operands do not lie along k. `bandwidth` is the share of the data sheet's
    memory bandwidth at which operands are read, by default that of `[stream]`.
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
        """Inner-loop rate of a tensor-core tile against the largest's."""
        if area >= 256 * 128:
            return 1.0
        if area >= 128 * 128:
            return self.half_tile
        return self.quarter_tile if area >= 128 * 64 else 0.8 * self.quarter_tile


def gemm_time(gemm: Gemm, rates: GemmRates, *, peak: float, sms: int, bandwidth: float) -> float:
    """Seconds of a product on an otherwise idle device.

    floor + exposed traffic of the result + |tiles in waves, prologue + bytes / bandwidth|, where
    |a, b| is the norm (a^4 + b^4)^(1/4), `peak` the FLOP/s of the precision at the clock that the
    device holds and `bandwidth` what memory achieves (B/s).
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
    """The share of the rate that the alignment of a 16-bit product's rows leaves."""
    wide = gemm.precision in ("fp16", "bf16") and not gemm.pads
    if not wide or not (gemm.n % ALIGNED or gemm.k % ALIGNED):
        return 1.0
    return MISALIGNED if gemm.batch > 1 else rates.misaligned


def norm(left: float, right: float) -> float:
    """The norm of two times, which is the larger where the other is much smaller.

    >>> round(norm(1.0, 1.0), 3), round(norm(3.0, 1.0), 3), norm(0.0, 0.0)
    (1.189, 3.009, 0.0)
    """
    large = max(left, right)
    if not large:
        return 0.0  # nothing is multiplied
    ratio = min(left, right) / large
    return float(large * (1.0 + ratio**ORDER) ** (1.0 / ORDER))


def _waves(gemm: Gemm, rates: GemmRates, sm: float, sms: int, bandwidth: float) -> float:
    """The fastest of the tilings: waves x (inner loop + prologue) + the sum of split-k's parts,
    with `sm` an SM's FLOP/s in the inner loop."""
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
