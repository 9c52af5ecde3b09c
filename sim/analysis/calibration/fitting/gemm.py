"""Fit the rates of matrix products to measured products."""

from collections.abc import Sequence
from dataclasses import replace
from math import exp, log
from typing import Any

from sim.analysis.calibration.fitting.constants import FREE, minimised
from sim.hardware.device import Device
from sim.hardware.kernels.measurements import Measurement
from sim.hardware.kernels.rates import GemmRates, gemm_time
from sim.model.kernels import Gemm

# The fields of `GemmRates` that are fitted if the device has them, each with the largest
# logarithm that it may take. `floor` is measured with empty kernels.
FITTED = {
    "half_tile": FREE,
    "quarter_tile": FREE,
    "prologue": FREE,
    "epilogue": FREE,
    "persistent": 0.0,
    "bandwidth": 0.0,
}
MOST = 1.2  # the largest share of the peak that `Shares` accepts
PULL = 0.1  # error of the logarithm, added if a constant is a factor of e away from its start


def fitted(
    device: Device,
    products: Sequence[Measurement],
    *,
    precision: str = "bf16",
    only_full: bool = False,
) -> GemmRates:
    """Return the rates that minimise the soft-L1 loss of log(predicted / measured) over `products`.

    All products have the same `precision`. `GemmRates.full` has a share of the peak for each
    precision; only this precision's share is fitted. With `only_full`, nothing else is fitted.
    """
    keys = [] if only_full else [key for key in FITTED if getattr(device.gemm, key)]

    def errors(logs: Sequence[float]) -> list[float]:
        rates = _with(device.gemm, precision, keys, logs)
        return [log(_time(device, rates, product) / product.seconds) for product in products]

    start = [log(device.gemm.full.of(precision))]
    start += [log(getattr(device.gemm, key)) for key in keys]
    ceilings = [log(MOST), *(FITTED[key] for key in keys)]
    return _with(
        device.gemm, precision, keys, minimised(errors, start, ceilings, pull=PULL, scale=0.02)
    )


def _with(
    rates: GemmRates, precision: str, keys: Sequence[str], logs: Sequence[float]
) -> GemmRates:
    changed: dict[str, Any] = {precision: exp(logs[0])}
    values: dict[str, Any] = {key: exp(x) for key, x in zip(keys, logs[1:], strict=True)}
    return replace(rates, full=replace(rates.full, **changed), **values)


def _time(device: Device, rates: GemmRates, product: Measurement) -> float:
    kernel = product.kernel
    assert isinstance(kernel, Gemm)
    return gemm_time(
        kernel,
        rates,
        peak=device.product_rate(kernel.precision),
        sms=device.sms,
        bandwidth=device.product_bandwidth,
    )
