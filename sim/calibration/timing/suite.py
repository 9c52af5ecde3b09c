"""Which kernels a calibration times: shapes spread evenly over the logarithms of their sizes.

The shapes are general ones, not those of any model; some are kept out of the fit, to judge it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import log2
from typing import Literal

import numpy as np

from sim.calibration.timing.calls import STREAMS, stream
from sim.hardware.kernels.measurements import class_of
from sim.model.kernels import Attention, Gemm, Kernel, Precision

Extent = Literal["quick", "full"]
EVERY = 5  # of so many shapes of a class one is kept out of the fit


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A kernel to time; kept out of the fit or not."""

    kernel: Kernel
    kept_out: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How large and how many: bounds of a product's sizes, of the FLOPs and bytes of a kernel, the
    number of shapes, and the bytes of memory-bound kernels."""

    dims: tuple[int, int]
    flops: float
    bytes: float
    products: int
    attentions: int
    streams: tuple[float, ...]
    precisions: tuple[Precision, ...]


def _octaves(low: float, high: float, count: int) -> tuple[float, ...]:
    return tuple(float(x) for x in np.geomspace(low, high, count))


SIZES: dict[tuple[str, Extent], Sizes] = {
    ("cpu", "quick"): Sizes(
        dims=(48, 4096), flops=2e9, bytes=2e8, products=64, attentions=48,
        streams=_octaves(6e4, 1.3e8, 12), precisions=("fp32",),
    ),
    ("cpu", "full"): Sizes(
        dims=(48, 8192), flops=1e10, bytes=4e8, products=160, attentions=100,
        streams=_octaves(3e4, 4e8, 18), precisions=("fp32", "bf16"),
    ),
    ("cuda", "quick"): Sizes(
        dims=(64, 16384), flops=3e12, bytes=4e9, products=80, attentions=48,
        streams=_octaves(1e5, 2e9, 10), precisions=("bf16",),
    ),
    ("cuda", "full"): Sizes(
        dims=(64, 65536), flops=2e13, bytes=1.5e10, products=240, attentions=160,
        streams=_octaves(5e4, 8e9, 16), precisions=("bf16", "fp16", "tf32", "fp32", "fp8"),
    ),
}  # fmt: skip


def suite(device: str, extent: Extent = "quick", seed: int = 0) -> list[Case]:
    """The kernels of a suite, the same for the same seed.

    >>> cases = suite("cpu", "quick")
    >>> len(cases) == len({repr(case.kernel) for case in cases})
    True
    """
    sizes, draw = SIZES[device, extent], np.random.default_rng(seed)
    shaped: list[Kernel] = []
    for number, precision in enumerate(sizes.precisions):
        few = 1 if number == 0 else 3  # the first precision is what models train in
        shaped += _products(sizes, precision, sizes.products // few, draw)
        if precision != "fp8" and (device == "cuda" or precision == "fp32"):
            shaped += _attentions(device, sizes, precision, sizes.attentions // few, draw)
    memory_bound = [stream(name, size, device) for name in STREAMS for size in sizes.streams]
    cases = [*_judged(shaped), *_judged_within(memory_bound, len(sizes.streams))]
    return list({repr(case.kernel): case for case in cases}.values())


def _products(
    sizes: Sizes, precision: Precision, count: int, draw: np.random.Generator
) -> Iterator[Kernel]:
    """The three products of linear layers, and one batched product in eight."""
    for number in range(count):
        m, n, k = _dims(sizes, 2 if precision == "fp8" else 1, draw)
        one = Gemm(name="forward", m=m, n=n, k=k, precision=precision)
        if number % 8 == 7:
            yield _batched(one, sizes, draw)
        elif precision == "fp8":
            yield one
        else:
            yield from (replace(one, name=name) for name in ("forward", "dgrad", "wgrad"))


def _dims(sizes: Sizes, coarse: int, draw: np.random.Generator) -> tuple[int, int, int]:
    """m, n and k, multiples of 8 (16 for fp8), small enough together."""
    low, high = map(log2, sizes.dims)
    step = 8 * coarse
    while True:
        m, n, k = (step * max(1, round(2 ** draw.uniform(low, high) / step)) for _ in range(3))
        one = Gemm(name="", m=m, n=n, k=k, precision="fp32")
        if one.flops <= sizes.flops and one.bytes <= sizes.bytes:
            return m, n, k


def _batched(gemm: Gemm, sizes: Sizes, draw: np.random.Generator) -> Gemm:
    """The product once for each head of a few sequences, as standard attention asks."""
    fits = min(sizes.flops / gemm.flops, sizes.bytes / gemm.bytes)
    batch = max(2, int(2 ** draw.uniform(1.0, max(1.1, min(9.0, log2(max(fits, 2.0)))))))
    return replace(gemm, batch=batch)


def _attentions(
    device: str, sizes: Sizes, precision: Precision, count: int, draw: np.random.Generator
) -> Iterator[Kernel]:
    """Forward and backward by each generation of fused attention that torch offers there."""
    for number in range(count // 2):
        one = _attention(sizes, precision, number, draw)
        for generation in _generations(device, precision, number):
            named = replace(one, name=generation)
            yield from (replace(named, backward=back) for back in (False, True))


def _generations(device: str, precision: Precision, number: int) -> tuple[str, ...]:
    if device == "cpu":
        return ("cpu",)
    half = ("flash2", "cudnn") if precision in ("fp16", "bf16") else ()
    return (*half, "memory-efficient", *(("math",) if number % 4 == 0 else ()))


def _attention(
    sizes: Sizes, precision: Precision, number: int, draw: np.random.Generator
) -> Attention:
    heads, grouped = int(draw.choice([4, 6, 8, 12, 16, 32])), number % 4 == 3
    while True:
        seq = 16 * max(4, round(2 ** draw.uniform(6.0, 14.0) / 16))
        one = Attention(
            name="",
            batch=int(2 ** draw.uniform(0.0, 6.0)),
            heads=heads,
            kv_heads=heads // 4 if grouped and heads % 4 == 0 else heads,
            q=seq,
            kv=seq,
            head=(64, 80, 128)[number % 3],
            causal=number % 2 == 0,
            precision=precision,
        )
        if 2.5 * one.flops <= sizes.flops and 4 * one.bytes <= sizes.bytes:
            return one


def _judged(kernels: Sequence[Kernel]) -> Iterator[Case]:
    """Every fifth of a class and precision is kept out."""
    seen: dict[tuple[str, str], int] = {}
    for kernel in kernels:
        kind = (class_of(kernel), getattr(kernel, "precision", ""))
        seen[kind] = seen.get(kind, 0) + 1
        yield Case(kernel=kernel, kept_out=seen[kind] % EVERY == 0)


def _judged_within(kernels: Sequence[Kernel], count: int) -> Iterator[Case]:
    """Of each curve of `count` sizes every fourth one that is not an end is kept out."""
    for number, kernel in enumerate(kernels):
        place = number % count
        yield Case(kernel=kernel, kept_out=place % 4 == 2 and place < count - 1)
