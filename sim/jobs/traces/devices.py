"""How long do the kernels of a trace take on another device?

A product, convolution or fused attention of known shape takes its measured time, multiplied by a
ratio of times. The kernel model gives these times for both devices (`sim.hardware.kernels`, which
times recordings, too):

    seconds on the target = measured seconds x model(shape, target) / model(shape, source)

Kernels of elementwise work, reductions and copies within the device are bound by memory. Such a
kernel takes `floor` seconds to begin and to end. In the remaining seconds it moves bytes, at the
bandwidth that the device achieves:

    floor(target) + (measured seconds - floor(source)) x B/s (source) / B/s (target)

Each device runs at the clock that its power limit allows if products and attention take as large a
share of the time as in the trace. A product or attention without a shape changes like kernels of
the same name in the same traces, else like a large kernel of its class. Copies to and from the
host, collectives, and kernels whose names say nothing keep their seconds. Seconds of the host
change with the processors with which the devices are sold.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.hardware import device as devices
from sim.hardware import nearest_device
from sim.hardware.device import WARM, Device
from sim.hardware.kernels.time import kernel_times
from sim.jobs.recorded.kernels import run_on
from sim.jobs.traces.profiled import OPERATORS
from sim.jobs.traces.rank_trace import Kernel, RankTrace
from sim.model.kernels import Attention, Gemm, Precision

Work = Gemm | Attention

_CAPTURE = "capture the script instead (sim capture)"
COLLECTIVES, COPIES, UNKNOWN = "collectives", "copies to or from the host", "unknown kernels"
UNMOVED = (COLLECTIVES, COPIES, UNKNOWN)
MEMORY, NETWORK = "by memory bandwidth", "collectives by the network"

# Names by CUTLASS, cuBLAS, cuDNN, Tensile (Cijk), MIOpen, FlashAttention, AOTriton, Triton by
# inductor (tem: a template of a product), torch, CUB and their ports to ROCm. The first match
# counts.
_CLASSES = {
    "copies": re.compile(r"Memcpy (HtoD|DtoH)"),
    "attention": re.compile(r"flash|fmha|attn_[fb]wd|attention", re.I),
    "memory": re.compile(
        r"nchw|nhwc(?!.*gemm)|splitkreduce|batched_transpose|at::native|batchnorm|\bbn_[bf]w", re.I
    ),
    "convolutions": re.compile(
        r"[fd]prop|dgrad|wgrad|convol|winograd|igemm|miopen|conv\dd|(884|s)cudnn", re.I
    ),
    "products": re.compile(r"gemm|gemv|Cijk_|xmma|tensorop|triton_tem", re.I),
    "other memory": re.compile(
        r"Memset|Memcpy DtoD|fillbuffer|copybuffer|triton_|cub::|thrust::|rocprim|elementwise"
        r"|reduce|norm|softmax|transpose|multi_tensor|dropout|embedding|index|scatter|gather"
        r"|cast|copy|rotary|rope|[sg]elu|silu|swiglu|expand|epilogue|computeoffsets", re.I
    ),
}  # fmt: skip
_PRECISIONS: dict[Precision, re.Pattern[str]] = {
    "fp8": re.compile(r"e4m3|e5m2|fp8|f8f8", re.I),
    "tf32": re.compile(r"tf32"),
    "fp32": re.compile(r"sgemm|f32f32_f32f32|scudnn|jk_SB_|jk_S_B_"),
}
# cuDNN rounds convolutions of fp32 to tf32 on devices that have tf32, unless a script forbids it
# (torch.backends.cudnn.allow_tf32). Products of fp32 are not rounded.
_ROUNDING = ("ampere", "ada", "hopper", "blackwell")
_LARGE: dict[str, Work] = {
    "products": Gemm(name="", m=8192, n=8192, k=8192),
    "convolutions": Gemm(name="", m=65536, n=512, k=2048),
    "attention": Attention(
        name="", batch=1, heads=32, kv_heads=32, q=4096, kv=4096, head=128, causal=True
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The kernels of a step to which one rule applies: their number, and their seconds before and
    after the move."""

    rule: str
    kernels: float
    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A move to another device: the device's seconds of a step by rule, the longest first.

    A rule moves the share `moved` of the seconds. `unknown` has the names of kernels that no rule
    knows. The host takes `host` times as long; None where the devices' files say nothing of hosts.
    """

    source: str
    target: str
    rules: tuple[Rule, ...]
    moved: float
    unknown: tuple[str, ...]
    host: float | None


@dataclass(frozen=True, slots=True)
class Devices:
    """The device that traces are of, and the device that they move to."""

    source: Device
    target: Device

    def of(self, ranks: Sequence[RankTrace]) -> list[RankTrace]:
        """The ranks on the target. Raises `InputError` where it lacks a kernel's arithmetic."""
        named, slower = self._named(ranks), self._host or 1.0
        return [
            replace(
                rank,
                kernels=tuple(self._moved(kernel, named)[1] for kernel in rank.kernels),
                host=tuple(replace(item, seconds=item.seconds * slower) for item in rank.host),
            )
            for rank in ranks
        ]

    def move(
        self,
        ranks: Sequence[RankTrace],
        carried: Sequence[RankTrace],
        leads: Sequence[int],
        steps: int,
    ) -> Move:
        """The rules for the kernels of `steps` steps. Of each rank the first `leads` kernels are
        left out. `carried` are the ranks with collectives as another network carries them."""
        named, found = self._named(ranks), defaultdict[str, list[tuple[float, float]]](list)
        unknown: defaultdict[str, float] = defaultdict(float)
        for rank, other, lead in zip(ranks, carried, leads, strict=True):
            for kernel, call in zip(rank.kernels[lead:], other.kernels[lead:], strict=True):
                rule, moved = self._moved(kernel, named)
                if kernel.collective != call.collective:
                    rule, moved = NETWORK, call
                if rule == UNKNOWN:
                    unknown[kernel.name] += kernel.seconds
                found[rule].append((kernel.seconds / steps, moved.seconds / steps))
        rules = [_summed(rule, each, steps) for rule, each in found.items()]
        total = sum(rule.before for rule in rules)
        left = sum(rule.before for rule in rules if rule.rule in UNMOVED)
        return Move(
            source=self.source.name,
            target=self.target.name,
            rules=tuple(sorted(rules, key=lambda rule: -rule.before)),
            moved=1.0 - left / total if total else 0.0,
            unknown=tuple(sorted(unknown, key=lambda name: -unknown[name])),
            host=self._host,
        )

    @property
    def _host(self) -> float | None:
        """How many times as long the target's host takes; None where nothing is known of either."""
        known = self.source == self.target or {self.source.host, self.target.host} != {1.0}
        return self.target.host / self.source.host if known else None

    def _moved(self, kernel: Kernel, named: Mapping[str, float]) -> tuple[str, Kernel]:
        """The rule of a kernel, and the kernel on the target."""
        if kernel.collective is not None:
            return COLLECTIVES, kernel
        if kernel.work is not None:
            rule, ratio = f"{_class_of(kernel)} by their shapes", self._ratio(kernel, kernel.work)
        elif (of := _class_of(kernel)) not in _LARGE:
            return self._bound_by_memory(kernel) if "memory" in of else (of or UNKNOWN, kernel)
        elif kernel.name in named:
            rule, ratio = f"{of} as others of the same name", named[kernel.name]
        else:
            rule, ratio = f"{of} as large ones", self._ratio(kernel, self._large(kernel, of))
        return rule, replace(kernel, seconds=kernel.seconds * ratio)

    def _named(self, ranks: Sequence[RankTrace]) -> dict[str, float]:
        """For each name, how many times as long all kernels of known shapes take on the target."""
        before: defaultdict[str, float] = defaultdict(float)
        after: defaultdict[str, float] = defaultdict(float)
        for kernel in (kernel for rank in ranks for kernel in rank.kernels):
            if kernel.work is not None and kernel.seconds:
                before[kernel.name] += kernel.seconds
                after[kernel.name] += kernel.seconds * self._ratio(kernel, kernel.work)
        return {name: after[name] / before[name] for name in before}

    def _ratio(self, kernel: Kernel, work: Work) -> float:
        """How many times as long the work takes on the target, by the model."""
        fused = ("cudnn", "flash2") if "cudnn" in kernel.name else ("flash2",)
        there = work
        if _class_of(kernel) == "convolutions" and "tf32" not in self.source.peak.known:
            rounded = work.precision == "fp32" and self.target.generation in _ROUNDING
            there = replace(work, precision="tf32") if rounded else work
        seconds, measured = (
            kernel_times(device)(run_on(each, device), (*fused, *device.attention)).seconds
            for each, device in ((there, self.target), (work, self.source))
        )
        return seconds / measured

    def _large(self, kernel: Kernel, of: str) -> Work:
        """A large kernel in the precision that a name tells, else in half precision."""
        told = (precision for precision, name in _PRECISIONS.items() if name.search(kernel.name))
        return replace(_LARGE[of], precision=next(told, self.source.half))

    def _bound_by_memory(self, kernel: Kernel) -> tuple[str, Kernel]:
        source, target = self.source, self.target
        floor = min(kernel.seconds, source.stream.floor)
        slower = kernel_times(source).bandwidth / kernel_times(target).bandwidth
        share = floor / source.stream.floor if source.stream.floor else 1.0
        begun = share * target.stream.floor
        return MEMORY, replace(kernel, seconds=begun + (kernel.seconds - floor) * slower)


def _summed(rule: str, each: Sequence[tuple[float, float]], steps: int) -> Rule:
    before, after = (sum(seconds) for seconds in zip(*each, strict=True))
    return Rule(rule=rule, kernels=len(each) / steps, before=before, after=after)


def _class_of(kernel: Kernel) -> str:
    """The class of a kernel by its known work, else by its name; empty where no name fits.

    >>> _class_of(Kernel(name="sm90_xmma_gemm_bf16", stream="7", seconds=1.0))
    'products'
    """
    if isinstance(kernel.work, Attention):
        return "attention"
    if kernel.work is not None:
        return "convolutions" if "convolution" in kernel.work.name else "products"
    found = next((of for of, names in _CLASSES.items() if names.search(kernel.name)), "")
    return COPIES if found == "copies" else found


def devices_of(ranks: Sequence[RankTrace], target: str, source: str = "") -> Devices:
    """The devices of a move; without a `source`, the trace names its own device. Raises
    `InputError`."""
    name, memory = ranks[0].device
    found = source or nearest_device.nearest(name, memory) or ""
    if not found:
        fault = f"no file in topologies/devices is of {name!r}" if name else "the trace names none"
        raise InputError("--device", f"needs the old device, but {fault}", "name it: --from NAME")
    if any(kernel.stream == OPERATORS for rank in ranks for kernel in rank.kernels):
        raise InputError("--device", "moves kernels of GPUs, but the trace is of a CPU", _CAPTURE)
    both = []
    for option, file in (("--from", found), ("--device", target)):
        device = devices.load(file, where=option)
        if device.generation == "cpu":
            raise InputError(option, "kernels do not move from or to a CPU", _CAPTURE)
        both.append(_clocked(device, _multiplying(ranks)))
    return Devices(*both)


def _multiplying(ranks: Sequence[RankTrace]) -> float:
    """The share of the time in which the devices run products and attention."""
    kernels = (kernel for rank in ranks for kernel in rank.kernels if not kernel.collective)
    busy = sum(kernel.seconds for kernel in kernels if _class_of(kernel) in _LARGE)
    total = sum(rank.ends[1] for rank in ranks if rank.ends)
    return busy / total if total else 1.0


def _clocked(device: Device, multiplying: float) -> Device:
    """The device; at its full clock if its power allows products for this share of the time."""
    draw = device.draw
    if draw is None or WARM * draw.static + multiplying * draw.products > device.power:
        return device
    return device.in_bursts()
