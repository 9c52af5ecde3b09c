"""The kernels that a calibration times: shapes spread evenly over the logarithms of their sizes.

The shapes belong to no particular model. Some shapes are kept out of the fit, and test it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import log2
from typing import Literal

import numpy as np

from sim.analysis.calibration.timing.calls import memory_bound
from sim.config.dataclass import dataclass
from sim.hardware.kernels.measurements import class_of
from sim.model.kernels import Attention, Gemm, Kernel, Precision

Suite = Literal["quick", "full"]
EVERY = 5  # every fifth shape of a class is kept out of the fit
LARGEST_STEP = 4.0 * 2**30  # bytes that an optimizer moves for 150 million parameters per rank


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCase:
    """A kernel to time, and whether it is kept out of the fit."""

    kernel: Kernel
    kept_out: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteSizes:
    """The sizes and numbers of a suite's kernels. `dims` has the least and the largest size of a
    product's dimensions; no kernel has more than `flops` and `bytes`. `products` and `attentions`
    are numbers of kernels; `streams` are the bytes of memory-bound kernels."""

    dims: tuple[int, int]
    flops: float
    bytes: float
    products: int
    attentions: int
    streams: tuple[float, ...]
    precisions: tuple[Precision, ...]


def _evenly(low: float, high: float, count: int) -> tuple[float, ...]:
    """Return sizes evenly spaced on a logarithmic scale."""
    return tuple(float(size) for size in np.geomspace(low, high, count))


SIZES: dict[tuple[str, Suite], SuiteSizes] = {
    ("cpu", "quick"): SuiteSizes(
        dims=(48, 4096), flops=2e9, bytes=2e8, products=64, attentions=48,
        streams=_evenly(6e4, 1.3e8, 12), precisions=("fp32",),
    ),
    ("cpu", "full"): SuiteSizes(
        dims=(48, 8192), flops=1e10, bytes=4e8, products=160, attentions=100,
        streams=_evenly(3e4, 4e8, 18), precisions=("fp32", "bf16"),
    ),
    ("cuda", "quick"): SuiteSizes(
        dims=(64, 16384), flops=3e12, bytes=4e9, products=80, attentions=48,
        streams=_evenly(1e5, 2e9, 10), precisions=("bf16",),
    ),
    ("cuda", "full"): SuiteSizes(
        dims=(64, 65536), flops=2e13, bytes=1.5e10, products=240, attentions=160,
        streams=_evenly(5e4, 8e9, 16), precisions=("bf16", "fp16", "tf32", "fp32", "fp8"),
    ),
}  # fmt: skip


def kernel_cases(device: str, suite: Suite = "quick", seed: int = 0) -> list[KernelCase]:
    """Return the kernels of a suite. The same seed gives the same kernels.

    >>> cases = kernel_cases("cpu", "quick")
    >>> len(cases) == len({repr(case.kernel) for case in cases})
    True
    """
    sizes, random = SIZES[device, suite], np.random.default_rng(seed)
    shaped: list[Kernel] = []
    for number, precision in enumerate(sizes.precisions):
        share = 1 if number == 0 else 3  # models train in the first precision
        shaped += _products(sizes, precision, sizes.products // share, random)
        if precision != "fp8" and (device == "cuda" or precision == "fp32"):
            shaped += _attentions(device, sizes, precision, sizes.attentions // share, random)
    cases = [*_keep_out_shapes(shaped), *_streams(device, sizes.streams)]
    return list({repr(case.kernel): case for case in cases}.values())


def _products(
    sizes: SuiteSizes, precision: Precision, count: int, random: np.random.Generator
) -> Iterator[Kernel]:
    """Yield the three products of linear layers; every eighth shape is a batched product."""
    for number in range(count):
        m, n, k = _dims(sizes, 16 if precision == "fp8" else 8, random)
        gemm = Gemm(name="forward", m=m, n=n, k=k, precision=precision)
        if precision == "fp8":  # torch has no batched fp8 products, and no other layouts
            yield gemm
        elif number % 8 == 7:
            yield _batched(gemm, sizes, random)
        else:
            yield from (replace(gemm, name=name) for name in ("forward", "dgrad", "wgrad"))


def _dims(sizes: SuiteSizes, step: int, random: np.random.Generator) -> tuple[int, int, int]:
    """Return m, n and k, multiples of `step`, of a product within the suite's FLOPs and bytes."""
    low, high = map(log2, sizes.dims)
    while True:
        m, n, k = (step * max(1, round(2 ** random.uniform(low, high) / step)) for _ in range(3))
        gemm = Gemm(name="", m=m, n=n, k=k, precision="fp32")
        if gemm.flops <= sizes.flops and gemm.bytes <= sizes.bytes:
            return m, n, k


def _batched(gemm: Gemm, sizes: SuiteSizes, random: np.random.Generator) -> Gemm:
    """Return the product as a batched product. Standard attention has such a product for each head
    of a few sequences."""
    fits = min(sizes.flops / gemm.flops, sizes.bytes / gemm.bytes)
    batch = max(2, int(2 ** random.uniform(1.0, max(1.1, min(9.0, log2(max(fits, 2.0)))))))
    return replace(gemm, batch=batch)


def _attentions(
    device: str, sizes: SuiteSizes, precision: Precision, count: int, random: np.random.Generator
) -> Iterator[Kernel]:
    """Yield forward and backward passes of each fused attention that torch has on the device."""
    for number in range(count // 2):
        attention = _attention(sizes, precision, number, random)
        for generation in _generations(device, attention, number):
            named = replace(attention, name=generation)
            yield from (replace(named, backward=backward) for backward in (False, True))


def _generations(device: str, attention: Attention, number: int) -> tuple[str, ...]:
    """Return the generations that can run an attention. Source for GPUs:
    aten/src/ATen/native/transformers/cuda/sdp_utils.cpp of PyTorch."""
    if device == "cpu":
        return ("cpu",)
    half = ("flash2", "cudnn") if attention.precision in ("fp16", "bf16") else ()
    each = ("memory-efficient",) if attention.kv_heads == attention.heads else ()
    return (*half, *each, *(("math",) if number % 4 == 0 else ()))


def _attention(
    sizes: SuiteSizes, precision: Precision, number: int, random: np.random.Generator
) -> Attention:
    heads, grouped = int(random.choice([4, 6, 8, 12, 16, 32])), number % 4 == 3
    while True:
        seq = 16 * max(4, round(2 ** random.uniform(6.0, 14.0) / 16))
        attention = Attention(
            name="",
            batch=int(2 ** random.uniform(0.0, 6.0)),
            heads=heads,
            kv_heads=heads // 4 if grouped and heads % 4 == 0 else heads,
            q=seq,
            kv=seq,
            head=(64, 80, 128)[number % 3],
            causal=number % 2 == 0,
            precision=precision,
        )
        if 2.5 * attention.flops <= sizes.flops and 4 * attention.bytes <= sizes.bytes:
            return attention


def _keep_out_shapes(kernels: Sequence[Kernel]) -> Iterator[KernelCase]:
    """Yield the kernels' cases; every fifth of a class and precision is kept out of the fit."""
    counts: dict[tuple[str, str], int] = {}
    for kernel in kernels:
        kind = (class_of(kernel), getattr(kernel, "precision", ""))
        counts[kind] = counts.get(kind, 0) + 1
        yield KernelCase(kernel=kernel, kept_out=counts[kind] % EVERY == 0)


def _streams(device: str, sizes: Sequence[float]) -> Iterator[KernelCase]:
    """Yield a curve of sizes for each memory-bound kind; some sizes are kept out of the fit."""
    for name, kind in memory_bound.KINDS.items():
        longer = (LARGEST_STEP,) if kind.optimizer and device == "cuda" else ()
        curve = sorted({*sizes, *longer})
        for place, size in enumerate(curve):
            kernel = memory_bound.kernel(name, size, device)
            yield KernelCase(kernel=kernel, kept_out=size_kept_out(place, len(curve)))


def size_kept_out(place: int, count: int) -> bool:
    """Return whether a size of a curve is kept out of the fit: every fourth, but never the last.

    >>> [place for place in range(7) if size_kept_out(place, 7)]
    [2]
    """
    return place % 4 == 2 and place < count - 1
