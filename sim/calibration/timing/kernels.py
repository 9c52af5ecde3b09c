"""`sim calibrate kernels`: from this machine's kernels to a profile of its device."""

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from sim.calibration.fitting.device import profiled
from sim.calibration.fitting.profile_file import write
from sim.calibration.timing import ranks
from sim.calibration.timing.calls import Call, call
from sim.calibration.timing.clock import Clock, EventClock, HostClock
from sim.calibration.timing.copies import copies
from sim.calibration.timing.launches import launches
from sim.calibration.timing.overlaps import overlaps
from sim.calibration.timing.provenance import provenance
from sim.calibration.timing.session import calibrate, quickest, require
from sim.calibration.timing.suite import Case, Extent, suite
from sim.calibration.training import allocation
from sim.config import catalog
from sim.config.errors import InputError
from sim.hardware.kernels.environment import Environment
from sim.hardware.kernels.measurements import read
from sim.hardware.kernels.profile import Profile
from sim.model.kernels import Kernel

Note = Callable[[str], None]

# Other work on a machine comes and goes; a GPU is one's own.
PASSES = {("cpu", "quick"): 2, ("cpu", "full"): 2, ("cuda", "quick"): 1, ("cuda", "full"): 1}


def calibrated(
    device: str, extent: Extent, out: Path, *, processes: int = 1, name: str = "", note: Note
) -> Profile | None:
    """Time a suite and write its profile to `out`; None on ranks that do not report.

    What is measured is kept in `partial(out)` until the profile is there, and a second call goes on
    from it. `name` is the device's file; a GPU's is guessed from what the driver calls it. Raises
    `InputError`.
    """
    require(device)
    name = name or file_of(device)
    catalog.find("topologies/devices", name, where="--as")
    out = out.with_suffix(".toml")
    store = part_of(out)
    cases = suite(device, extent)
    ranks.run(
        _timed, processes, cases, device, PASSES[device, extent], store,
        device=device, threads=threads(processes) if device == "cpu" else 0,
    )  # fmt: skip
    if ranks.own_rank() > 0:
        return None
    measured = quickest(read(store, store))
    found = profiled(
        name, measured, table=out.with_suffix(".csv").name,
        provenance={**provenance(device, processes=processes), "samples": len(measured)},
        surroundings=_surroundings(device, note),
    )  # fmt: skip
    write(found, out)
    store.unlink()
    return found


def part_of(out: Path) -> Path:
    """Where measurements are kept while a profile is under way.

    >>> part_of(Path("mine.toml")).name
    'mine.part.csv'
    """
    return out.with_suffix(".part.csv")


def threads(processes: int) -> int:
    """torch's threads in each of several processes that share this machine's cores."""
    return max(1, (os.cpu_count() or 1) // processes)


def clock_of(device: str) -> Clock:
    return EventClock() if device == "cuda" else HostClock()


def _timed(rank: int, cases: Sequence[Case], device: str, passes: int, store: Path) -> int:
    """On every rank at once; rank 0 keeps the times. Gives how many it has."""
    from tqdm import tqdm

    bar = partial(tqdm, unit="kernel", desc="kernels", disable=None if rank == 0 else True)

    def note(said: str) -> None:
        if rank == 0:
            tqdm.write(said)

    if device == "cpu":
        allocation.keep_freed()  # as training does that `sim measure` times
    done = calibrate(
        cases, clock_of(device), store=store, keep=rank == 0, passes=passes,
        progress=bar, note=note, make=_together,
    )  # fmt: skip
    return len(done)


def _together(kernel: Kernel, device: str) -> Call:
    """The kernel's call, when every process is ready for it."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        dist.barrier()
    return call(kernel, device)


def _surroundings(device: str, note: Note) -> Environment:
    """What surrounds kernels, as far as the device has it."""
    clock = clock_of(device)
    return Environment(
        host=launches(device),
        copies=tuple(copies(clock, note=note)),
        overlaps=tuple(overlaps(device)),
    )


def file_of(device: str) -> str:
    """The file in topologies/devices of this machine's device. Raises `InputError`."""
    if device == "cpu":
        return "cpu"
    import torch

    called, memory = torch.cuda.get_device_name(), torch.cuda.get_device_properties(0).total_memory
    found = nearest_file(called, float(memory), _files())
    if found is None:
        what = f"no file in topologies/devices is of {called!r}"
        raise InputError("--as", what, "write one (CONTRIBUTING.md, a device), or name one: --as")
    return found


def nearest_file(called: str, memory: float, files: Iterable[tuple[str, float]]) -> str | None:
    """Of (name, memory) the one whose first word is in what the driver calls the device, and whose
    memory is nearest.

    >>> known = [("h100-80gb-sxm", 85e9), ("a100-40gb-sxm", 42e9), ("a100-80gb-sxm", 85e9)]
    >>> nearest_file("NVIDIA A100-SXM4-80GB", 84.9e9, known)
    'a100-80gb-sxm'
    """
    fitting = [(abs(size - memory), name) for name, size in files
               if name.partition("-")[0] in called.lower()]  # fmt: skip
    return min(fitting)[1] if fitting else None


def _files() -> list[tuple[str, float]]:
    from sim.hardware import device

    return [(name, device.load(name).memory) for name in catalog.names("topologies/devices")]
