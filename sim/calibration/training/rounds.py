"""Measuring a job where the machine's speed drifts: calibration and training steps take turns.

Runs on every rank at once. Kernels are timed on all ranks together, because processes on one
machine share its memory bandwidth.
"""

import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import mean, median
from typing import Any

from sim.calibration.training import allocation
from sim.calibration.training.observation import Laps, Observation, Round
from sim.parallel.job import Job

# Bytes of the all-reduces that tell gloo's cost of a message and the loopback's bandwidth.
TRANSFERS = (64.0, 64 * 2.0**10, 2.0**20, 4 * 2.0**20, 25 * 2.0**20)
_WARM_UP = 2
_REPEATS = 7

Calibrate = Callable[[int, int], Sequence[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """`rounds` of `steps` training steps each; `calibrate(round, rounds)` times kernels before
    them, or is None where a profile is there already."""

    rounds: int = 5
    steps: int = 4
    calibrate: Calibrate | None = None


def course(steps: int) -> Course:
    """So many steps in rounds of four, an even number of rounds.

    >>> course(20), course(3)
    (Course(rounds=6, steps=4, calibrate=None), Course(rounds=2, steps=2, calibrate=None))
    """
    rounds = max(2, 2 * round(steps / 8 + 0.49))
    return Course(rounds=rounds, steps=-(-steps // rounds))


def observe(rank: int, job: Job, device: str, course: Course, report: Callable[[str], None]) -> Any:
    """What rank 0 sees of all of them; call it on every rank."""
    from sim.calibration.training.trainer import Trainer

    if device == "cpu":
        allocation.keep_freed()
    trainer = Trainer(job, device, rank)
    for _ in range(_WARM_UP):
        trainer.step()
    # Counting a CPU's allocations takes a profiler, so it is no step that is timed.
    # A graph's memory is a pool of its own, which torch does not count.
    peak = 0.0 if job.stack.graph else allocation.peak(trainer.step, trainer.held, device)
    rounds = []
    for number in range(course.rounds):
        if rank == 0:
            report(f"round {number + 1} of {course.rounds}")
        rounds.append(_round(trainer, job.plan.data_parallel, number, course))
    seen = Observation(
        rounds=tuple(rounds),
        parameters=trainer.network.count,
        peak=peak,
        loss=trainer.loss,
        machine=machine(device),
    )
    return _joined(_gathered(seen, job.plan.data_parallel))


def _round(trainer: Any, ranks: int, number: int, course: Course) -> Round:
    before = reference(trainer.device)
    kernels = course.calibrate(number, course.rounds) if course.calibrate else ()
    transfers = [(size, _all_reduce(size)) for size in TRANSFERS] if ranks > 1 else ()
    trainer.step()  # what the calibration left in the caches is not the step's
    steps = tuple(trainer.step() for _ in range(course.steps))
    return Round(
        reference=(before + reference(trainer.device)) / 2,
        steps=steps,
        kernels=tuple(kernels),
        transfers=tuple(transfers),
    )


def reference(device: str) -> float:
    """Seconds of a product of 768 x 768 matrices and a sum of 16 MiB, the machine's yardstick."""
    import torch

    a = torch.randn(768, 768, device=device)
    b = torch.randn(2**22, device=device)
    out = torch.empty_like(b)

    def once() -> float:
        began = time.perf_counter()
        torch.mm(a, a)
        torch.add(b, b, out=out)
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - began

    once()
    return median(once() for _ in range(_REPEATS))


def _all_reduce(size: float) -> float:
    """Median seconds of an all-reduce of so many bytes."""
    import torch
    import torch.distributed as dist

    data = torch.zeros(int(size) // 4)
    seconds = []
    for _ in range(_REPEATS):
        dist.barrier()
        began = time.perf_counter()
        dist.all_reduce(data)
        seconds.append(time.perf_counter() - began)
    return median(seconds[1:])


def _gathered(seen: Observation, ranks: int) -> list[Observation]:
    if ranks == 1:
        return [seen]
    import torch.distributed as dist

    everyone: list[Any] = [None] * ranks
    dist.all_gather_object(everyone, seen)
    return everyone


def _joined(everyone: Sequence[Observation]) -> Observation:
    """Of equal ranks: mean laps, references and transfers, the highest peak, all kernels."""
    rounds = []
    for parts in zip(*(one.rounds for one in everyone), strict=True):
        steps = [_mean_laps(laps) for laps in zip(*(part.steps for part in parts), strict=True)]
        transfers = zip(*(part.transfers for part in parts), strict=True)
        rounds.append(
            Round(
                reference=mean(part.reference for part in parts),
                steps=tuple(steps),
                kernels=tuple(kernel for part in parts for kernel in part.kernels),
                transfers=tuple((same[0][0], mean(one[1] for one in same)) for same in transfers),
            )
        )
    peak, loss = max(one.peak for one in everyone), mean(one.loss for one in everyone)
    return replace(everyone[0], rounds=tuple(rounds), peak=peak, loss=loss)


def _mean_laps(laps: Sequence[Laps]) -> Laps:
    return {name: mean(one.get(name, 0.0) for one in laps) for name in laps[0]}


def machine(device: str) -> dict[str, str]:
    """What the steps ran on."""
    import torch

    if device == "cuda":
        name = torch.cuda.get_device_name()
        return {"device": name, "torch": torch.__version__, "cuda": str(torch.version.cuda)}
    threads = torch.get_num_threads()
    return {
        "device": f"{_processor()}, {threads} {'thread' if threads == 1 else 'threads'} a rank",
        "torch": torch.__version__,
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            named = [line for line in lines if line.startswith("model name")]
    except OSError:
        named = []
    return named[0].partition(":")[2].strip() if named else platform.processor() or "CPU"
