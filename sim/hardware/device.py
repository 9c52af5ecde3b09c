"""A device: the rates and sizes that its data sheet states, read from `topologies/devices`."""

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cached_property, lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Annotated, Any, Literal

from sim.config import catalog
from sim.config.checked import Named
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.units import Bytes, BytesPerSecond, FlopsPerSecond, Ge, Gt, Hertz, Le, Lt, Watts
from sim.hardware.kernels.rates import INTEGER_LANES, AttentionRates, GemmRates, MemoryBoundRates

if TYPE_CHECKING:
    from sim.hardware.kernels.profile import Profile

Generation = Literal[
    "volta", "ampere", "ada", "hopper", "blackwell", "cdna3", "cdna4", "cpu", "tpu"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """Dense matrix rate by the precision of the operands (FLOP/s), sparsity not counted.

    A precision that the device does not have is left out.
    """

    fp32: FlopsPerSecond | None = None
    tf32: FlopsPerSecond | None = None
    fp16: FlopsPerSecond | None = None
    bf16: FlopsPerSecond | None = None
    fp8: FlopsPerSecond | None = None
    fp4: FlopsPerSecond | None = None

    @property
    def known(self) -> tuple[str, ...]:
        """The precisions that the device has."""
        return tuple(f.name for f in fields(self) if getattr(self, f.name) is not None)


# Leakage of a chip that has run for hours, divided by its leakage at first. It grows by about 1 %
# a kelvin (assumed). H100 and B200 sustain 3 to 5 % less in training than in benchmarks
# (docs/kernels.md).
WARM = 1.35


# Joules for each byte that memory moves, at 5 pJ a bit: HBM2 takes 3.9 pJ (O'Connor et al. 2017,
# Fine-Grained DRAM), and the chip's end of the links about 1 pJ (assumed).
OF_A_BYTE = 8 * 5e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerDraw:
    """The power of a board while it multiplies: `static` at any clock (leakage, memory, links), and
    `products` in addition at the full clock. `spread` is the standard deviation of the clocks that
    boards of one model hold under one power limit, as a share of their mean.

    Source of `spread`: two sweeps of NVIDIA's aiconfigurator time the same long products, which the
    GPUs of a node divide among them. The times of a product differ by 1.3 % (A100), 2.8 % (H100 and
    H200) and 1.6 % (B200 and B300). A board of one sweep is thus at most 1.3, 1.9 and 1.1 % off the
    mean; 1.3 % is the median of these bounds (`python -m benchmarks.boards`, docs/kernels.md).
    Boards of different nodes, V100s, L40S and AMD's boards are not measured.
    """

    static: Watts
    products: Watts
    spread: Annotated[float, Ge(0), Lt(0.1)] = 0.013

    def clock(self, limit: float, warmth: float = 1.0, boards: int = 1) -> float:
        """The share of the full clock that the slowest of n `boards` holds under a limit (W).

        (1 - spread z) ((limit - static x warmth) / products)^(1/3), at most 1. Dynamic power grows
        with the clock and the square of the voltage, and the voltage grows with the clock. z is the
        normal quantile of (n - 3/8) / (n + 1/4): the expected distance of the slowest of n boards
        below the mean (Blom 1958, Statistical Estimates and Transformed Beta-Variables).

        >>> draw = PowerDraw(static=100.0, products=800.0)
        >>> [round(draw.clock(200.0, boards=n), 3) for n in (1, 8, 1024)]
        [0.5, 0.491, 0.479]
        """
        behind = self.spread * NormalDist().inv_cdf((boards - 0.375) / (boards + 0.25))
        return min(1.0, (1.0 - behind) * math.cbrt((limit - self.static * warmth) / self.products))


@dataclass(frozen=True, kw_only=True)
class Device(metaclass=Named):
    """One accelerator, as its data sheet and its driver describe it.

    `memory` is the memory that a process can use (torch's `total_memory`). `reserve` is the part of
    it that is taken before the first tensor, outside torch's allocator: CUDA context and NCCL's
    buffers. `clock` is the boost clock at which `peak` is stated. `gemm`, `stream` and `attention`
    (by generation of the fused kernel) hold the shares of these figures that kernels achieve;
    `lanes` are the integer lanes of an SM. `interference` is the share of speed that kernels lose
    beside a tensor-parallel collective, whose CTAs occupy SMs and memory bandwidth. `beside` is the
    share of its ports' bandwidth that a collective keeps while kernels run beside it.
    `link_bandwidth` is the rate of all links, each way. `draw` lowers the clock of products until
    the board draws `power`; without `draw`, the clock is full. `boards` is the number of devices
    that wait for one another: products run as on the slowest of them. `host` is a factor on launch
    times, for the processor that is sold with the device. `profile` names measured times in
    `topologies/profiles`, which are preferred.
    """

    name: str
    generation: Generation
    peak: Peaks
    memory: Bytes
    reserve: Bytes
    memory_bandwidth: BytesPerSecond
    sms: int
    l2: Bytes
    clock: Hertz
    power: Watts
    gemm: GemmRates
    stream: MemoryBoundRates
    attention: Mapping[str, AttentionRates]
    draw: PowerDraw | None = None
    lanes: int = INTEGER_LANES
    interference: Annotated[float, Ge(0), Lt(1)] = 0.0
    beside: Annotated[float, Gt(0), Le(1)] = 1.0
    host: float = 1.0
    profile: str = ""
    boards: Annotated[int, Ge(1)] = 1
    link_bandwidth: BytesPerSecond | None = None

    def __post_init__(self) -> None:
        for key in ("sms", "lanes"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key} = {getattr(self, key)} must be at least 1")
        if self.reserve >= self.memory:
            raise ValueError("reserve must be smaller than memory")
        if self.draw and WARM * self.draw.static >= self.power:
            least = WARM * self.draw.static
            raise ValueError(f"power must exceed draw.static of a warm board, {least:.0f} W")

    @cached_property
    def _hash(self) -> int:
        rates = {field.name: getattr(self, field.name) for field in fields(self)}
        return hash(tuple((rates | {"attention": frozenset(self.attention.items())}).values()))

    def __hash__(self) -> int:
        """The hash of every field, computed once, as a cache of kernel times often asks for it."""
        return self._hash

    def __getstate__(self) -> dict[str, Any]:
        """The fields without the hash, which another process computes for itself."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def measured(self) -> "Profile | None":
        """The profile that the device names, as its files were when this device was made."""
        if not self.profile:
            return None
        from sim.hardware.kernels import profile as profiles

        return profiles.load(self.profile, where=self.name)

    @property
    def transposes_operands(self) -> bool:
        """Whether products of eight-bit operands need the summed dimension innermost in both.

        Hopper's wgmma transposes 16-bit operands only (PTX ISA, wgmma.mma_async, imm-trans-a), and
        Ada's mma of eight bits is row by column only (mma.m16n8k32); Blackwell's and AMD's take any
        layout (TransformerEngine, pytorch/utils.py, is_non_tn_fp8_gemm_supported: from 10.0 on).
        """
        return self.generation in ("ada", "hopper")

    @property
    def scales_blocks(self) -> bool:
        """Whether tensor cores apply one-byte scales of blocks (MXFP8, NVFP4) themselves.

        Devices with four-bit arithmetic do: Blackwell's tcgen05.mma (PTX ISA, block_scale of
        kind::mxf8f6f4 and mxf4) and CDNA4's scaled MFMA. TransformerEngine 2.0's pytorch/fp8.py,
        check_mxfp8_support, asks for compute capability 10.0; AMD's port asks for gfx950.
        """
        return "fp4" in self.peak.known

    def held_clock(self, precision: str) -> float:
        """The share of the full clock that products hold for hours. Products of fp32 hold the full
        clock: they run on CUDA cores, which draw less than tensor cores."""
        if self.draw is None or precision == "fp32":
            return 1.0
        return self.draw.clock(self.power, WARM, self.boards)

    def among(self, boards: int) -> "Device":
        """The device as the slowest of `boards` such devices, for which the others wait."""
        return self if boards == self.boards else interned(replace(self, boards=boards))

    def product_rate(self, precision: str) -> float:
        """The peak of matrix products (FLOP/s) at the clock that products hold."""
        return self.held_clock(precision) * self.peak_rate(precision)

    def drawn(self, *, multiplying: float, streaming: float, seconds: float) -> float:
        """Mean power (W) over `seconds`, in which the board multiplies for `multiplying` and
        streams for `streaming` seconds.

        static + products x clock^3 x multiplying / seconds + memory x streaming / seconds, where
        memory is `OF_A_BYTE` x bandwidth. Without `draw`, the answer is `power`.

        >>> h100 = load("h100-80gb-sxm")
        >>> [round(h100.drawn(multiplying=s, streaming=0, seconds=1)) for s in (0, 1)]
        [202, 700]
        """
        if self.draw is None:
            return self.power
        products = self.draw.products * self.held_clock("bf16") ** 3
        memory = OF_A_BYTE * self.memory_bandwidth * self.stream.bandwidth
        busy = products * multiplying + memory * streaming
        return min(self.power, WARM * self.draw.static + busy / seconds)

    def in_bursts(self) -> "Device":
        """The device at its full clock, which it keeps for some milliseconds."""
        return interned(replace(self, draw=None))

    @property
    def product_bandwidth(self) -> float:
        """Memory bandwidth that matrix products achieve (B/s)."""
        return self.memory_bandwidth * (self.gemm.bandwidth or self.stream.bandwidth)

    @property
    def usable_memory(self) -> float:
        """Bytes that tensors can take: memory - reserve."""
        return self.memory - self.reserve

    def without(self, sms: int) -> "Device":
        """The device that kernels see where software sets `sms` SMs aside for communication: the
        same memory, a share of the peaks, and no measured times. Raises `InputError` where no SM is
        left."""
        if not sms:
            return self
        left = self.sms - sms
        if left < 1:
            fault = f"reserved_sms = {sms}, but {self.name} has {self.sms} SMs"
            raise InputError("stack, fusion", fault, "lower reserved_sms")
        rates = {name: getattr(self.peak, name) * left / self.sms for name in self.peak.known}
        return interned(replace(self, sms=left, peak=replace(self.peak, **rates), profile=""))

    @property
    def half(self) -> Literal["bf16", "fp16"]:
        """The half precision that the device multiplies in: bf16, or fp16 where it has no bf16."""
        return "bf16" if "bf16" in self.peak.known else "fp16"

    def peak_rate(self, precision: str, where: str = "precision") -> float:
        """Dense peak of matrix products with operands of `precision` (FLOP/s).

        Raises `InputError` where the device has no such arithmetic.

        >>> load("a100-80gb-sxm").peak_rate("bf16")
        312000000000000.0
        """
        if precision not in self.peak.known:
            remedy = f"it has {', '.join(self.peak.known)}"
            raise InputError(where, f"{self.name} has no {precision}", remedy)
        return float(getattr(self.peak, precision))


def load(name: str, *, where: str = "command line") -> Device:
    """The device that a name in `topologies/devices` (or a path) stands for."""
    return interned(catalog.load("topologies/devices", name, Device, where=where))


def interned(device: Device) -> Device:
    """The first of all equal devices, so that caches find a device by identity."""
    return _interned(device, device.measured)


@lru_cache(maxsize=256)
def _interned(device: Device, measured: "Profile | None") -> Device:
    return device
