"""Fit a device's `[gemm]` and `[attention]` tables to measured efficiencies, and say how well.

    python -m sim.calibration.fitting.gemm DEVICE efficiency.json [--fit]

The file is a SimuMax system file: achieved shares of the peak by shape of matrix products (those of
a linear layer's forward, input gradient and weight gradient) and of fused attention. Every other
shape is fitted; the printed errors are of the shapes between them alone.
"""

import json
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from pathlib import Path
from typing import Any

from sim.config.errors import InputError
from sim.hardware import device as devices
from sim.hardware.device import Device
from sim.hardware.kernels.gemm import GemmRates, gemm_time
from sim.hardware.kernels.time import kernel_time
from sim.model.kernels import Attention, Gemm

# What is fitted of `GemmRates`; `floor` is known from empty kernels.
FITTED = ("burst", "half_tile", "quarter_tile", "prologue", "epilogue")
MOST_SUSTAINED = 1.2  # of the peak; `Shares` takes no more
PULL = 0.1  # error (of the logarithm) that a factor of e away from the present constant costs


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One measured kernel and its time (s)."""

    kernel: Gemm | Attention
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """Absolute errors predicted/measured - 1 over some shapes, and their mean with its sign."""

    shapes: int
    median: float
    worst_twentieth: float
    bias: float


def read(path: Path) -> tuple[list[Shape], list[Shape]]:
    """Matrix products and attention kernels of a SimuMax system file. Raises `InputError`."""
    try:
        operations = json.loads(path.read_text(encoding="utf-8"))["accelerator"]["op"]
    except (OSError, ValueError, KeyError) as error:
        raise InputError(str(path), f"is no SimuMax system file ({error})", "check it") from None
    products = _shapes(operations["matmul"], _product)
    attention = _shapes(operations["sdp_fwd"], _forward) + _shapes(operations["sdp_bwd"], _backward)
    return products, [one for one in attention if _square(one.kernel)]


def _square(kernel: Gemm | Attention) -> bool:
    """Heads as wide in V as in Q; what SimuMax counts for others is another matter."""
    return isinstance(kernel, Attention) and kernel.head <= 128


def _shapes(
    table: dict[str, Any], made: Callable[[dict[str, str]], Gemm | Attention | None]
) -> list[Shape]:
    shapes = []
    for text, share in table["accurate_efficient_factor"].items():
        kernel = made(dict(part.strip().split("=") for part in text.split(",")))
        if kernel is not None:
            time = _counted(kernel) / (share * table["tflops"] * 1e12)
            shapes.append(Shape(kernel=kernel, time=time))
    return shapes


def _counted(kernel: Gemm | Attention) -> float:
    """FLOPs as the file counts them: attention in full, also where the mask halves it."""
    return kernel.flops * (2.0 if isinstance(kernel, Attention) else 1.0)


def _product(given: dict[str, str]) -> Gemm | None:
    accumulate = given["accumulate"] == "True"
    if accumulate and given["out_dtype"] != "fp32":
        return None  # accumulation in half precision: no stack described here does it
    m, n, k = (int(given[key]) for key in "mnk")
    batch = int(given["b"])
    return Gemm(name="product", m=m, n=n, k=k, batch=batch, accumulate=accumulate)


def _forward(given: dict[str, str], *, backward: bool = False) -> Attention | None:
    if given["qkv_contiguous"] != "True":
        return None
    seq = int(given["seq_len"])
    return Attention(
        name="attention",
        batch=int(given["batch"]),
        heads=int(given["head_num"]),
        kv_heads=int(given["kv_head_num"]),
        q=seq,
        kv=seq,
        head=int(given["qk_head_dim"]),
        causal=True,
        backward=backward,
    )


def _backward(given: dict[str, str]) -> Attention | None:
    return _forward(given, backward=True)


def fitted(
    device: Device,
    shapes: Sequence[Shape],
    *,
    precision: str = "bf16",
    only_sustained: bool = False,
) -> GemmRates:
    """The rates that minimise the soft-L1 of log(predicted / measured) over `shapes`.

    Of `sustained` the share of `precision` is fitted, which all shapes have.
    """
    least_squares = solver()
    keys = () if only_sustained else FITTED
    start = [log(device.gemm.sustained.of(precision))]
    start += [log(getattr(device.gemm, key)) for key in keys]

    def residuals(logs: Sequence[float]) -> list[float]:
        rates = _with(device.gemm, precision, keys, logs)
        errors = [log(_time(device, rates, one.kernel) / one.time) for one in shapes]
        return errors + [PULL * (x - x0) for x, x0 in zip(logs, start, strict=True)]

    ceiling = [log(MOST_SUSTAINED), *([60.0] * len(keys))]
    found = least_squares(
        residuals,
        [min(x, top - 1e-6) for x, top in zip(start, ceiling, strict=True)],
        bounds=([-60.0] * len(ceiling), ceiling),
        loss="soft_l1",
        f_scale=0.02,
        diff_step=1e-3,
    )
    return _with(device.gemm, precision, keys, found.x)


def solver() -> Any:
    """scipy's least squares. Raises `InputError` where scipy is missing."""
    try:
        from scipy.optimize import least_squares  # type: ignore[import-untyped]  # it ships no types
    except ImportError:
        what, remedy = "scipy is not installed", "pip install 'clustersim[calibrate]'"
        raise InputError("calibration", what, remedy) from None
    return least_squares


def _with(
    rates: GemmRates, precision: str, keys: Sequence[str], logs: Sequence[float]
) -> GemmRates:
    changed: dict[str, Any] = {precision: exp(logs[0])}
    sustained = replace(rates.sustained, **changed)
    values = {key: exp(value) for key, value in zip(keys, logs[1:], strict=True)}
    return replace(rates, sustained=sustained, **values)


def _time(device: Device, rates: GemmRates, kernel: Gemm | Attention) -> float:
    assert isinstance(kernel, Gemm)
    return gemm_time(
        kernel,
        rates,
        peak=device.peak_rate(kernel.precision),
        sms=device.sms,
        bandwidth=device.memory_bandwidth * device.stream.bandwidth,
    )


def error(device: Device, shapes: Sequence[Shape]) -> Error:
    """How far a device's kernel times are from measured ones."""
    signed = [
        kernel_time(one.kernel, device, tuple(device.attention)[::-1]) / one.time - 1
        for one in shapes
    ]
    sizes = sorted(map(abs, signed))
    return Error(
        shapes=len(sizes),
        median=sizes[len(sizes) // 2],
        worst_twentieth=sizes[int(0.95 * (len(sizes) - 1))],
        bias=sum(signed) / len(signed),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the errors by kind of kernel and, after --fit, the constants that were found."""
    parser = ArgumentParser(prog="python -m sim.calibration.fitting.gemm", description=__doc__)
    parser.add_argument("device", help="a name in topologies/devices")
    parser.add_argument("efficiency", type=Path)
    parser.add_argument("--fit", action="store_true", help="fit before the errors are printed")
    options = parser.parse_args(arguments)
    device = devices.load(options.device)
    products, attention = read(options.efficiency)
    if options.fit:
        device = replace(device, name="fitted", gemm=fitted(device, products[::2]))
        print(f"sustained.bf16 = {device.gemm.sustained.of('bf16'):.4g}")
        for key in FITTED:
            print(f"{key} = {getattr(device.gemm, key):.4g}")
    print(f"{'kernel':12}{'shapes':>7}{'median':>8}{'95th':>8}{'bias':>8}")
    for name, shapes in (("product", products[1::2]), ("attention", attention)):
        one = error(device, shapes)
        line = f"{one.median:8.1%}{one.worst_twentieth:8.1%}{one.bias:+8.1%}"
        print(f"{name:12}{one.shapes:7}{line}")


if __name__ == "__main__":
    main()
