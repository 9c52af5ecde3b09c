"""A calibration session: time every kernel of a suite, keep each as it is measured, go on later."""

import csv
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from sim.calibration.timing.calls import call
from sim.calibration.timing.clock import Call, Clock
from sim.calibration.timing.suite import Case
from sim.config.errors import InputError
from sim.hardware.kernels.measurements import COLUMNS, Measurement, read, row
from sim.model.kernels import Attention, Gemm, Kernel

Make = Callable[[Kernel, str], Call]
Note = Callable[[str], None]

SETS = 8  # at most so many sets of inputs are taken in turn ...
CACHE = {"cpu": 8e7, "cuda": 2.6e8}  # ... until together they are more bytes than any cache holds


def calibrate(
    cases: Sequence[Case],
    clock: Clock,
    *,
    store: Path | None = None,
    keep: bool = True,
    passes: int = 1,
    progress: Callable[[Iterable[Case]], Iterable[Case]] = iter,
    note: Note = lambda _: None,
    make: Make = call,
) -> list[Measurement]:
    """Time the kernels that `store` does not hold yet; each is appended to it at once (not
    without `keep`).

    With several `passes` each kernel is timed in each of them and its quickest time stands: what
    else the machine does comes and goes. A kernel that runs out of memory, that torch cannot
    execute here, or whose time is not a number is left out, and `note` says so. Interrupted, it
    keeps what was measured. Raises `InputError` where the store cannot be read.
    """
    done: dict[str, list[Measurement]] = {}
    for one in _stored(store):
        done.setdefault(repr(one.kernel), []).append(one)
    left = [
        case
        for number in range(passes)
        for case in cases
        if len(done.get(repr(case.kernel), ())) <= number
    ]
    for case in progress(left):
        measured = _measured(case, clock, make, note)
        if measured is not None:
            done.setdefault(repr(case.kernel), []).append(measured)
            if keep:
                _append(store, measured)
    return quickest(one for case in cases for one in done.get(repr(case.kernel), ()))


def _stored(store: Path | None) -> Iterable[Measurement]:
    return read(store, store) if store is not None and store.exists() else ()


def quickest(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Of several times of a kernel the least, in the order in which kernels come first."""
    found: dict[str, Measurement] = {}
    for one in measurements:
        best = found.setdefault(repr(one.kernel), one)
        if one.seconds < best.seconds:
            found[repr(one.kernel)] = one
    return list(found.values())


def _append(store: Path | None, measured: Measurement) -> None:
    if store is None:
        return
    new = not store.exists()
    with store.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row(measured))


def _measured(case: Case, clock: Clock, make: Make, note: Note) -> Measurement | None:
    """The time of a case, or None where it cannot be had here."""
    kernel = case.kernel
    try:
        timing = clock.time(
            [make(kernel, clock.device) for _ in range(_sets(kernel, clock.device))]
        )
    except (RuntimeError, MemoryError) as error:  # torch's OutOfMemoryError is a RuntimeError
        note(f"left out {shape(kernel)}: {_first_line(error)}")
        return None
    if not 0 < timing.seconds < math.inf:
        note(f"left out {shape(kernel)}: its time came out as {timing.seconds}")
        return None
    return Measurement(
        kernel=kernel, seconds=timing.seconds, spread=timing.spread, kept_out=case.kept_out
    )


def _sets(kernel: Kernel, device: str) -> int:
    """So many sets of inputs that a cache does not hold them."""
    return max(1, min(SETS, math.ceil(CACHE[device] / max(kernel.bytes, 1.0))))


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:120]


def shape(kernel: Kernel) -> str:
    """A kernel in a few words.

    >>> shape(Gemm(name="wgrad", m=8, n=16, k=32))
    'bf16 product wgrad 8 x 16 x 32'
    """
    if isinstance(kernel, Gemm):
        times = f" x {kernel.batch}" if kernel.batch > 1 else ""
        sizes = f"{kernel.m} x {kernel.n} x {kernel.k}{times}"
        return f"{kernel.precision} product {kernel.name} {sizes}"
    if isinstance(kernel, Attention):
        way = "backward" if kernel.backward else "forward"
        sizes = f"{kernel.batch} x {kernel.heads} x {kernel.q} x {kernel.head}"
        return f"{kernel.precision} attention {way} {sizes}"
    return f"{kernel.name} of {kernel.bytes:,.0f} B"


def require(device: str) -> None:
    """Raise `InputError` unless torch is there and has the device."""
    try:
        import torch
    except ImportError:
        what = "torch is not installed"
        raise InputError("sim calibrate", what, "pip install 'clustersim[calibrate]'") from None
    if device == "cuda" and not torch.cuda.is_available():
        what = "torch sees no CUDA device"
        raise InputError("--device cuda", what, "check nvidia-smi, or take --device cpu")
