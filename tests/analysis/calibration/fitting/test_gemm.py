"""The fit recovers the rates that generated the data."""

from dataclasses import replace
from statistics import median

import pytest

from benchmarks.published_kernels import errors
from sim.analysis.calibration.fitting.gemm import fitted
from sim.hardware import device as devices
from sim.hardware.device import Device
from sim.hardware.kernels.measurements import Measurement
from sim.hardware.kernels.rates import gemm_time
from sim.hardware.kernels.time import kernel_time
from sim.model.kernels import Gemm

A100 = devices.load("a100-80gb-pcie")


def median_error(device: Device, products: list[Measurement]) -> float:
    return median(map(abs, errors(device, products)))


def test_a_fit_recovers_the_rates_that_generated_the_times() -> None:
    true = replace(A100.gemm, full=replace(A100.gemm.full, bf16=0.70), prologue=4e-6)
    peak, bandwidth = A100.product_rate("bf16"), A100.product_bandwidth
    products = []
    for m in (512, 1024, 1536, 4096, 8192):
        for k in (512, 1024, 4096, 8192):
            gemm = Gemm(name="product", m=m, n=4096, k=k)
            seconds = gemm_time(gemm, true, peak=peak, sms=108, bandwidth=bandwidth)
            products.append(Measurement(kernel=gemm, seconds=seconds))
    device = replace(A100, gemm=fitted(A100, products))
    assert median_error(device, products) < 0.01 < median_error(A100, products)
    assert device.gemm.full.of("bf16") == pytest.approx(0.70, rel=0.02)


def test_errors_of_exact_predictions_are_zero() -> None:
    gemm = Gemm(name="product", m=4096, n=4096, k=4096)
    product = Measurement(kernel=gemm, seconds=kernel_time(gemm, A100))
    assert errors(A100, [product] * 3) == [0.0, 0.0, 0.0]
