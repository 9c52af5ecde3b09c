"""Fit a device's `[gemm]` table to published products, and print the errors.

    python -m benchmarks.published_kernels DEVICE TABLE [--only COLUMN=VALUE ...] [--every N]
        [--fit]

TABLE is a SimuMax system file (.json), whose products ran on and on, or a table of products as `sim
validate --kernels` reads it, timed in bursts. One product in N is fitted, 2 unless stated, each
precision's share of the peak by itself; the printed errors are those of the others.
"""

from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, median_high

from benchmarks.simumax import read
from sim.analysis.calibration.fitting.gemm import FITTED, fitted
from sim.analysis.calibration.fitting.kernel_tables import timed_rows
from sim.hardware import device as devices
from sim.hardware.device import Device
from sim.hardware.kernels.measurements import Measurement
from sim.hardware.kernels.shape_classes import LONG
from sim.hardware.kernels.time import kernel_time
from sim.model.kernels import Gemm

BURST = 8e-3  # s: a longer product, run nine times, meets the power limit


def errors(device: Device, measurements: Sequence[Measurement]) -> list[float]:
    """predicted / measured - 1 of each kernel by the device's rates."""
    generations = tuple(device.attention)[::-1]
    return [kernel_time(m.kernel, device, generations) / m.seconds - 1 for m in measurements]


def of_table(path: Path, device: Device, only: dict[str, str]) -> list[Measurement]:
    """Products of a burst, less the time of what ran before them."""
    return [
        Measurement(kernel=row.kernel, seconds=row.seconds - before)
        for row in timed_rows(path, only, {}, "bf16")
        for before in [row.seconds_before(device)]
        if isinstance(row.kernel, Gemm) and row.seconds - before > LONG and row.seconds < BURST
    ]


def fit(device: Device, products: Sequence[Measurement]) -> Device:
    """All constants from the precision with most products, then the other shares of the peak."""
    groups: defaultdict[str, list[Measurement]] = defaultdict(list)
    for product in products:
        assert isinstance(product.kernel, Gemm)
        groups[product.kernel.precision].append(product)
    largest_first = sorted(groups, key=lambda precision: -len(groups[precision]))
    for place, precision in enumerate(largest_first):
        rates = fitted(device, groups[precision], precision=precision, only_full=place > 0)
        device = replace(device, gemm=rates)
    return device


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the errors by kind of kernel and, with --fit, the fitted constants."""
    parser = ArgumentParser(prog="python -m benchmarks.published_kernels", description=__doc__)
    parser.add_argument("device", help="a name in topologies/devices")
    parser.add_argument("table", type=Path)
    parser.add_argument("--fit", action="store_true", help="fit before the errors are printed")
    parser.add_argument("--only", nargs="*", default=[], metavar="COLUMN=VALUE")
    parser.add_argument("--every", type=int, default=2, metavar="N", help="fit one product in N")
    options = parser.parse_args(arguments)
    device, attention = devices.load(options.device), list[Measurement]()
    if options.table.suffix == ".json":
        products, attention = read(options.table)
    else:
        device = device.in_bursts()
        only = dict(choice.split("=", 1) for choice in options.only)
        products = of_table(options.table, device, only)
    if options.fit:
        device = fit(device, products[:: options.every])
        print(f"full = {device.gemm.full}")
        for key in FITTED:
            print(f"{key} = {getattr(device.gemm, key)}")
    kept_out = [m for place, m in enumerate(products) if place % options.every]
    print(f"{'kernel':12}{'shapes':>7}{'median':>8}{'95th':>8}{'bias':>8}")
    for kind, measurements in (("product", kept_out), ("attention", attention)):
        if measurements:
            signed = errors(device, measurements)
            sizes = sorted(map(abs, signed))
            line = f"{median_high(sizes):8.1%}{sizes[int(0.95 * (len(sizes) - 1))]:8.1%}"
            print(f"{kind:12}{len(sizes):7}{line}{mean(signed):+8.1%}")


if __name__ == "__main__":
    main()
