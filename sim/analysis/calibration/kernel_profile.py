"""`sim calibrate kernels`: time this machine's kernels, and write a profile of its device."""

import time
from collections.abc import Callable, Iterable, Sequence
from math import inf
from os import PathLike
from pathlib import Path
from typing import Literal

from sim.analysis.calibration.fitting.device_profile import host_table, profiled
from sim.analysis.calibration.fitting.profile_file import write
from sim.analysis.calibration.timing import process_group, torch_device
from sim.analysis.calibration.timing.calls.dispatch import call
from sim.analysis.calibration.timing.clock import Call, clock_of
from sim.analysis.calibration.timing.host_times import host_times
from sim.analysis.calibration.timing.interference import slowdowns
from sim.analysis.calibration.timing.kernel_suite import KernelCase, Suite, kernel_cases
from sim.analysis.calibration.timing.kernels import quickest, time_kernels
from sim.analysis.calibration.timing.launches import copies, launches
from sim.analysis.calibration.timing.provenance import provenance
from sim.config import catalog, counting, progress
from sim.config.errors import InputError
from sim.hardware import nearest_device
from sim.hardware.kernels.environment import Environment
from sim.hardware.kernels.measurements import read
from sim.hardware.kernels.profile import Profile
from sim.model.kernels import Kernel


def device_file(device: str) -> str:
    """Return the name of the device's file. Raises `InputError` if no file fits."""
    if device == "cpu":
        return "cpu"
    import torch

    name, memory = torch.cuda.get_device_name(), torch.cuda.get_device_properties(0).total_memory
    nearest = nearest_device.nearest(name, float(memory))
    if nearest is None:
        fault = f"no file in topologies/devices describes {name!r}"
        raise InputError("--as", fault, "write a file (CONTRIBUTING.md), or name one: --as NAME")
    return nearest


# How often each kernel is timed. A CPU may have other work at times; a GPU has no other users.
PASSES = {("cpu", "quick"): 2, ("cpu", "full"): 2, ("cuda", "quick"): 1, ("cuda", "full"): 1}


def calibrate(
    device: Literal["cuda", "cpu"],
    suite: Suite,
    out: str | PathLike[str],
    *,
    processes: int = 1,
    name: str = "",
    minutes: float = inf,
    note: Callable[[str], None] = lambda message: None,
) -> Profile | None:
    """Time a suite and write its profile to `out`. Returns None on all ranks but rank 0, and if the
    `minutes` were over before the last kernel.

    Measurements are kept in `part_of(out)` until the profile is written, and a second call resumes
    from them. `name` is the device's file; for a GPU it is found from the driver's name of the GPU.
    Raises `InputError`.
    """
    until = time.monotonic() + 60.0 * minutes
    torch_device.require(device)
    name = name or device_file(device)
    catalog.find("topologies/devices", name, where="--as")
    out = Path(out).with_suffix(".toml")
    store = part_of(out)
    threads = process_group.threads_each(processes) if device == "cpu" else 0
    process_group.run(
        _on_rank, processes, kernel_cases(device, suite), device, PASSES[device, suite], store,
        until, device=device, threads=threads,
    )  # fmt: skip
    if process_group.own_rank() > 0 or time.monotonic() > until:
        return None
    measured = quickest(read(store, store))
    profile = profiled(
        name, measured, table=out.with_suffix(".csv").name,
        provenance={**provenance(device, processes=processes), "samples": len(measured)},
        environment=_environment(device, note),
        operators=host_table(host_times(device, PASSES[device, suite])),
    )  # fmt: skip
    write(profile, out)
    store.unlink()
    return profile


def part_of(out: Path) -> Path:
    """Return the file that keeps measurements until the profile is complete.

    >>> part_of(Path("mine.toml")).name
    'mine.part.csv'
    """
    return out.with_suffix(".part.csv")


def _on_rank(
    rank: int,
    cases: Sequence[KernelCase],
    device: str,
    passes: int,
    store: Path,
    until: float,
) -> None:
    """Time the cases on every rank at once; rank 0 keeps the times."""
    from tqdm import tqdm

    def counted(cases: Iterable[KernelCase]) -> Iterable[KernelCase]:
        rows = list(cases)
        return counting.counted(rows, total=len(rows), unit="kernel") if rank == 0 else rows

    def note(message: str) -> None:
        if rank == 0:
            tqdm.write(message)

    if device == "cpu":
        torch_device.keep_freed()  # as in the training that `sim measure` times
    time_kernels(
        cases, clock_of(device), store=store, keep=rank == 0, passes=passes,
        progress=counted, note=note, make=_call_together, until=until,
    )  # fmt: skip


def _call_together(kernel: Kernel, device: str) -> Call:
    """Return the kernel's call, built when every process is ready for it."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        dist.barrier()
    return call(kernel, device)


@progress.waited("launches, copies and what slows kernels")
def _environment(device: str, note: Callable[[str], None]) -> Environment:
    """Measure launches, copies and interference, as far as the device has them."""
    return Environment(
        host=launches(device),
        copies=tuple(copies(clock_of(device), note=note)),
        overlaps=tuple(slowdowns(device)),
    )
