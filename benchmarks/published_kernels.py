"""Fit a device's `[gemm]` table to published efficiencies, and print the errors.

    python -m benchmarks.published_kernels DEVICE efficiency.json [--fit]

The file is a SimuMax system file. Every other product is fitted; the printed errors are those of
the products between them, and of attention, which is not fitted.
"""

from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, median_high

from benchmarks.simumax import read
from sim.analysis.calibration.fitting.gemm import FITTED, fitted
from sim.hardware import device as devices
from sim.hardware.device import Device
from sim.hardware.kernels.measurements import Measurement
from sim.hardware.kernels.time import kernel_time


def errors(device: Device, measurements: Sequence[Measurement]) -> list[float]:
    """predicted / measured - 1 of each kernel by the device's rates."""
    generations = tuple(device.attention)[::-1]
    return [kernel_time(m.kernel, device, generations) / m.seconds - 1 for m in measurements]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the errors by kind of kernel and, with --fit, the fitted constants."""
    parser = ArgumentParser(prog="python -m benchmarks.published_kernels", description=__doc__)
    parser.add_argument("device", help="a name in topologies/devices")
    parser.add_argument("efficiency", type=Path)
    parser.add_argument("--fit", action="store_true", help="fit before the errors are printed")
    options = parser.parse_args(arguments)
    device = devices.load(options.device)
    products, attention = read(options.efficiency)
    if options.fit:
        device = replace(device, gemm=fitted(device, products[::2]))
        print(f"full.bf16 = {device.gemm.full.of('bf16'):.4g}")
        for key in FITTED:
            print(f"{key} = {getattr(device.gemm, key):.4g}")
    print(f"{'kernel':12}{'shapes':>7}{'median':>8}{'95th':>8}{'bias':>8}")
    for kind, measurements in (("product", products[1::2]), ("attention", attention)):
        signed = errors(device, measurements)
        sizes = sorted(map(abs, signed))
        line = f"{median_high(sizes):8.1%}{sizes[int(0.95 * (len(sizes) - 1))]:8.1%}"
        print(f"{kind:12}{len(sizes):7}{line}{mean(signed):+8.1%}")


if __name__ == "__main__":
    main()
