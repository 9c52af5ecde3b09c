"""Time every kernel of a suite. Each time is stored at once, so that a later call resumes."""

import csv
import math
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from sim.analysis.calibration.timing.calls.dispatch import call
from sim.analysis.calibration.timing.clock import Call, Clock
from sim.analysis.calibration.timing.kernel_suite import KernelCase
from sim.config.grouped import grouped
from sim.config.tables import without_torn_end
from sim.hardware.kernels.measurements import COLUMNS, HEADING, Measurement, read, row
from sim.model.kernels import Attention, Gemm, Kernel

MOST_INPUTS = 8  # the most sets of inputs that are used in turn
CACHE = {"cpu": 8e7, "cuda": 2.6e8}  # bytes of all sets of inputs together; caches hold less


def time_kernels(
    cases: Sequence[KernelCase],
    clock: Clock,
    *,
    store: Path | None = None,
    keep: bool = True,
    passes: int = 1,
    progress: Callable[[Iterable[KernelCase]], Iterable[KernelCase]] = iter,
    note: Callable[[str], None] = lambda message: None,
    make: Callable[[Kernel, str], Call] = call,
    until: float = math.inf,
) -> list[Measurement]:
    """Time the kernels that `store` does not hold yet. With `keep`, each time is stored at once.

    No kernel is begun when `time.monotonic()` is past `until`.

    Each kernel is timed `passes` times, and its shortest time is used, since other work on the
    machine comes and goes. A kernel is left out and reported through `note` if it runs out of
    memory, if torch cannot execute it here, or if its time is not a positive number. Measurements
    before an interruption are kept. Raises `InputError` if the store cannot be read.
    """
    done: dict[str, list[Measurement]] = {}
    if store is not None and store.exists():
        without_torn_end(store, heading=HEADING, mend=keep)
    for measurement in read(store, store) if store is not None and store.exists() else ():
        done.setdefault(repr(measurement.kernel), []).append(measurement)
    missing = [
        case
        for number in range(passes)
        for case in cases
        if len(done.get(repr(case.kernel), ())) <= number
    ]
    for number, case in enumerate(progress(missing)):
        if time.monotonic() > until:
            note(f"{len(missing) - number} kernels left")
            break
        measured = _measured(case, clock, make, note)
        if measured is not None:
            done.setdefault(repr(case.kernel), []).append(measured)
            if store is not None and keep:
                _append(store, measured)
    return quickest(timed for case in cases for timed in done.get(repr(case.kernel), ()))


def quickest(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Return the shortest time of each kernel, in the order in which kernels first appear."""
    by_kernel = grouped((repr(measurement.kernel), measurement) for measurement in measurements)
    return [min(group, key=lambda measurement: measurement.seconds) for group in by_kernel.values()]


def _append(store: Path, measured: Measurement) -> None:
    new = not store.exists()
    with store.open("a", encoding="utf-8", newline="") as file:
        if new:
            file.write(HEADING)
        csv.DictWriter(file, COLUMNS, lineterminator="\n").writerow(row(measured))


def _measured(
    case: KernelCase,
    clock: Clock,
    make: Callable[[Kernel, str], Call],
    note: Callable[[str], None],
) -> Measurement | None:
    """Return the time of a case; None if it cannot be measured here."""
    kernel, failed = case.kernel, ""
    try:
        calls = [make(kernel, clock.device) for _ in range(_input_sets(kernel, clock.device))]
        timing = clock.time(calls)
    except (RuntimeError, MemoryError) as error:  # torch's OutOfMemoryError is a RuntimeError
        failed = _first_line(error)
    if failed:  # outside of `except`, so the error no longer holds the inputs
        note(f"left out {description(kernel)}: {failed}")
        _empty_cache(clock.device)
        return None
    if not 0 < timing.seconds < math.inf:
        note(f"left out {description(kernel)}: its time came out as {timing.seconds}")
        return None
    return Measurement(
        kernel=kernel, seconds=timing.seconds, spread=timing.spread, kept_out=case.kept_out
    )


def _empty_cache(device: str) -> None:
    """Return torch's cached memory to the device, since the next kernel has tensors of other
    sizes."""
    if device == "cuda":
        import torch

        torch.cuda.empty_cache()


def _input_sets(kernel: Kernel, device: str) -> int:
    """Return how many sets of inputs are needed to exceed every cache together."""
    return max(1, min(MOST_INPUTS, math.ceil(CACHE[device] / max(kernel.bytes, 1.0))))


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:120]


def description(kernel: Kernel) -> str:
    """Return a kernel in a few words.

    >>> description(Gemm(name="wgrad", m=8, n=16, k=32))
    'bf16 product wgrad 8 x 16 x 32'
    """
    if isinstance(kernel, Gemm):
        times = f" x {kernel.batch}" if kernel.batch > 1 else ""
        sizes = f"{kernel.m} x {kernel.n} x {kernel.k}{times}"
        return f"{kernel.precision} product {kernel.name} {sizes}"
    if isinstance(kernel, Attention):
        direction = "backward" if kernel.backward else "forward"
        sizes = f"{kernel.batch} x {kernel.heads} x {kernel.q} x {kernel.head}"
        return f"{kernel.precision} attention {direction} {sizes}"
    return f"{kernel.name} of {kernel.bytes:,.0f} B"
