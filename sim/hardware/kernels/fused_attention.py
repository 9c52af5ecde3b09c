"""The time of fused attention: FLOPs on whole tiles of queries and keys, spread over SMs."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import ceil

from sim.config.errors import InputError
from sim.hardware.device import Device
from sim.hardware.kernels.rates import ROWS, AttentionRates, norm
from sim.model.kernels import Attention, Precision

_COMPILED = 32  # kernels are compiled for multiples of this head size


def in_precision(rates: AttentionRates, precision: Precision) -> AttentionRates:
    """The rates in a precision. Raises `InputError` where no kernels have that precision."""
    if precision not in ("fp8", "fp4"):
        return rates
    if rates.fp8 is None or precision != "fp8":
        fault = f"its fused attention has no kernels in {precision}"
        raise InputError("plan, recipe", fault, "name a recipe without attention")
    return replace(rates, forward=rates.fp8.forward, backward=rates.fp8.backward, fp8=None)


def multiplied(rates: AttentionRates, kernel: Attention) -> float:
    """FLOPs that a kernel performs on whole tiles of queries and keys.

    Causal kernels perform half of these FLOPs, plus half of the granules on the diagonal. With a
    window, keys beyond the window count, too, if a CTA goes through them (`reached`).

    >>> rates = AttentionRates(forward={64: 0.5}, backward={64: 0.5}, granule=512)
    >>> short = Attention(
    ...     name="", batch=1, heads=1, kv_heads=1, q=256, kv=256, head=64, causal=True
    ... )
    >>> multiplied(rates, short) / short.flops
    2.0
    """
    tiles = _tiles(kernel.q, ROWS if kernel.backward else rates.rows) / kernel.q
    if kernel.span < kernel.kv:
        keys = kernel.keys(reached(rates, kernel)) / kernel.keys(kernel.span)
        return kernel.flops * tiles * keys
    whole = _tiles(kernel.kv, ROWS)
    diagonal = 1.0 + min(1.0, rates.granule / whole) * kernel.causal
    return kernel.flops * tiles * diagonal * whole / kernel.kv


def reached(rates: AttentionRates, kernel: Attention) -> int:
    """The most keys that a CTA goes through."""
    further = max(ROWS if kernel.backward else rates.rows, rates.overrun)
    return kernel.kv if kernel.span == kernel.kv else min(kernel.kv, kernel.span + further)


def share(rates: AttentionRates, head: float, *, backward: bool) -> float:
    """The share of the peak that a head size achieves.

    >>> rates = AttentionRates(forward={64: 0.4, 128: 0.6}, backward={64: 0.3})
    >>> [round(share(rates, head, backward=False), 3) for head in (32, 64, 80, 96, 128, 256)]
    [0.2, 0.4, 0.417, 0.5, 0.6, 0.6]
    """
    shares = sorted((rates.backward if backward else rates.forward).items())
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

    |t, bytes / bandwidth|, the norm of `gemm_time`. Here t is the time of the FLOPs spread over the
    SMs (at least that of the longest CTA), plus the tail and the CTAs' prologues. A CTA takes some
    queries (keys when backward) of one head.
    """
    head = (kernel.head + kernel.values) / 2
    rate = peak * share(rates, head, backward=kernel.backward) / sms
    rows, tail = (ROWS, min(0.5, rates.tail)) if kernel.backward else (rates.rows, rates.tail)
    longest = float(rows * reached(rates, kernel) * kernel.width)
    ctas = kernel.batch * kernel.heads * -(-kernel.q // rows)
    work = max(multiplied(rates, kernel) / min(sms, ctas), longest)
    if ctas > 1:
        work += tail * longest
    begun = 0.0 if kernel.backward else rates.prologue * max(1.0, ctas / sms)
    return norm(work / rate + begun, kernel.bytes / bandwidth)


def _tiles(length: int, rows: int) -> int:
    """`length` rounded up to whole tiles."""
    return rows * -(-length // rows)


def seconds(kernel: Attention, device: Device, offered: Sequence[str], bandwidth: float) -> float:
    """Seconds of a kernel of the first offered generation for which the device has rates."""
    rates = in_precision(offered_rates(device, offered), kernel.precision)
    peak = device.peak_rate(kernel.precision)
    return attention_time(kernel, rates, peak=peak, sms=device.sms, bandwidth=bandwidth)


def offered_rates(device: Device, offered: Sequence[str]) -> AttentionRates:
    """The rates of the first offered generation for which the device has rates."""
    for generation in offered:
        if generation in device.attention:
            return device.attention[generation]
    known = ", ".join(device.attention) or "none"
    fault = f"{device.name} runs none of {', '.join(offered)}"
    raise InputError("stack, attention", fault, f"it knows {known}")
