"""Kernels that are timed between training steps, and the profile made from their times."""

from collections.abc import Sequence
from dataclasses import replace
from math import exp, log
from pathlib import Path
from statistics import mean, median

from sim.analysis.calibration.fitting.device_profile import profiled
from sim.analysis.calibration.fitting.profile_file import write
from sim.analysis.calibration.timing.clock import clock_of
from sim.analysis.calibration.timing.kernel_suite import kernel_cases
from sim.analysis.calibration.timing.kernels import time_kernels
from sim.analysis.calibration.timing.provenance import provenance
from sim.analysis.calibration.training.job_measurement import JobMeasurement
from sim.config.grouped import grouped
from sim.hardware.kernels.measurements import Measurement
from sim.model.kernels import Precision


def time_share(device: str, precision: Precision, number: int, rounds: int) -> list[Measurement]:
    """Time the kernels of the quick suite that belong to a round; over all rounds, each kernel is
    timed once. Call it on every rank at once.

    The suite has general shapes; shapes of the measured job are among them only by chance.
    """
    cases = [
        case
        for case in kernel_cases(device, "quick")
        if getattr(case.kernel, "precision", precision) == precision
    ]
    return time_kernels(cases[number::rounds], clock_of(device))


def at_median_speed(job: JobMeasurement) -> list[Measurement]:
    """Return every kernel once: the mean over ranks and rounds, at the speed of the median round.

    The reference kernels of a round show the machine's speed; the times of each round are scaled to
    the speed of the median round.
    """
    middle = median(measured.reference for measured in job.rounds)
    by_kernel = grouped(
        (repr(own.kernel), replace(own, seconds=own.seconds * middle / measured.reference))
        for measured in job.rounds
        for own in measured.kernels
    )
    return [_mean(same) for same in by_kernel.values()]


def _mean(same: Sequence[Measurement]) -> Measurement:
    seconds = exp(mean(log(measurement.seconds) for measurement in same))
    return replace(same[0], seconds=seconds, spread=max(m.spread for m in same))


def write_profile(job: JobMeasurement, device_file: str, path: Path, processes: int) -> None:
    """Write the profile of the kernels that were timed between the steps."""
    origin = provenance("cpu" if device_file == "cpu" else "cuda", processes=processes)
    table = path.with_suffix(".csv").name
    write(profiled(device_file, at_median_speed(job), table=table, provenance=origin), path)
