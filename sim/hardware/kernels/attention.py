"""How long a fused attention kernel takes, by its generation (FlashAttention 1, 2, 3, cuDNN)."""

from collections.abc import Mapping
from dataclasses import field, replace
from itertools import pairwise
from math import ceil
from typing import Annotated

from sim.config.bounds import Ge
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.units import Seconds
from sim.hardware.kernels.gemm import norm
from sim.model.kernels import Attention, Precision

# Keys per CTA of the backward pass, and queries per CTA of the forward pass unless stated otherwise
# (flash-attention, csrc/flash_attn/src/flash_fwd_launch_template.h and flash_bwd_...).
ROWS = 128
_COMPILED = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class LowRates:
    """Shares of the peak in eight bits, by head size."""

    forward: Mapping[int, float]
    backward: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionRates:
    """Share of the 16-bit peak that a kernel generation sustains, by head size.

    Kernels are compiled for heads of multiples of 32 and pad (flash-attention,
    csrc/flash_attn/src: 32, 64, 96, 128, 192, 256); between two sizes the rate is interpolated, a
    smaller head's falls in proportion, as exponentials are as many. Only multiplications that are
    performed count (half of them when causal). `fp8` are the shares of its own peak that a
    generation with kernels in eight bits sustains. `rows` are the queries of one CTA of the forward
    pass. SMs finish unevenly, `tail` CTAs of the longest kind later than they would if the work
    were spread evenly. `granule` is how many keys a causal mask skips at a time; the granules on
    the diagonal are multiplied in full. Under a window the queries of a CTA see different keys and
    go through all of them; it takes the time of `overrun` keys beyond the window if these are more.
    `prologue` is a CTA's time outside its inner loop, forward. Kernels for inference alone have no
    `backward`.
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

    def of(self, precision: Precision) -> "AttentionRates":
        """The rates in a precision. Raises `InputError` where there are no such kernels."""
        if precision not in ("fp8", "fp4"):
            return self
        if self.fp8 is None or precision != "fp8":
            fault = f"its fused attention has no kernels in {precision}"
            raise InputError("plan, recipe", fault, "name a recipe without attention")
        return replace(self, forward=self.fp8.forward, backward=self.fp8.backward, fp8=None)

    def multiplied(self, kernel: Attention) -> float:
        """FLOPs performed, of whole tiles of queries and keys: half of them when causal, and half
        of the granules on the diagonal.

        With a window, those of `rows` or `overrun` further keys.

        >>> rates = AttentionRates(forward={64: 0.5}, backward={64: 0.5}, granule=512)
        >>> short = Attention(
        ...     name="", batch=1, heads=1, kv_heads=1, q=256, kv=256, head=64, causal=True
        ... )
        >>> rates.multiplied(short) / short.flops
        2.0
        """
        tiles = _tiles(kernel.q, ROWS if kernel.backward else self.rows) / kernel.q
        if kernel.span < kernel.kv:
            keys = kernel.keys(self.reached(kernel)) / kernel.keys(kernel.span)
            return kernel.flops * tiles * keys
        whole = _tiles(kernel.kv, ROWS)
        diagonal = 1.0 + min(1.0, self.granule / whole) * kernel.causal
        return kernel.flops * tiles * diagonal * whole / kernel.kv

    def reached(self, kernel: Attention) -> int:
        """Keys that a CTA goes through at most."""
        further = max(ROWS if kernel.backward else self.rows, self.overrun)
        return kernel.kv if kernel.span == kernel.kv else min(kernel.kv, kernel.span + further)

    def share(self, head: float, *, backward: bool) -> float:
        """The share of the peak for a head size.

        >>> rates = AttentionRates(forward={64: 0.4, 128: 0.6}, backward={64: 0.3})
        >>> [round(rates.share(head, backward=False), 3) for head in (32, 64, 80, 96, 128, 256)]
        [0.2, 0.4, 0.417, 0.5, 0.6, 0.6]
        """
        shares = sorted((self.backward if backward else self.forward).items())
        if not shares:
            raise InputError("stack, attention", "its kernels have no backward pass", "name others")
        smallest, largest = shares[0], shares[-1]
        if head >= largest[0]:
            return largest[1]
        if head <= smallest[0]:
            return smallest[1] * head / smallest[0]
        compiled = _COMPILED * ceil(head / _COMPILED)
        for (below, low), (above, high) in pairwise(shares):
            if compiled <= above:
                rate = low + (high - low) * (compiled - below) / (above - below)
                return rate * head / compiled
        return largest[1]


def attention_time(
    kernel: Attention, rates: AttentionRates, *, peak: float, sms: int, bandwidth: float
) -> float:
    """Seconds of a fused attention kernel on an otherwise idle device.

    |FLOPs spread over the SMs, at least the longest CTA, plus the tail and the CTAs' prologues;
    bytes / bandwidth|, where |a, b| is the norm of `gemm_time`. A CTA takes some
    queries (keys when backward) of one head.
    """
    head = (kernel.head + kernel.values) / 2
    rate = peak * rates.share(head, backward=kernel.backward) / sms
    rows, tail = (ROWS, min(0.5, rates.tail)) if kernel.backward else (rates.rows, rates.tail)
    longest = float(rows * rates.reached(kernel) * kernel.width)
    ctas = kernel.batch * kernel.heads * -(-kernel.q // rows)
    work = max(rates.multiplied(kernel) / min(sms, ctas), longest)
    if ctas > 1:
        work += tail * longest
    begun = 0.0 if kernel.backward else rates.prologue * max(1.0, ctas / sms)
    return norm(work / rate + begun, kernel.bytes / bandwidth)


def _tiles(length: int, rows: int) -> int:
    """`length` rounded up to whole tiles."""
    return rows * -(-length // rows)
