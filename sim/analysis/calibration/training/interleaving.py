"""Measuring a job on a machine whose speed drifts: calibration and training steps alternate.

Runs on every rank at once. Kernels are timed on all ranks together, because processes on one
machine share its memory bandwidth.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sim.analysis.calibration.timing import allocator
from sim.analysis.calibration.timing.provenance import machine
from sim.analysis.calibration.timing.reference import reference_kernels, transfers
from sim.analysis.calibration.training.job_measurement import (
    JobMeasurement,
    MeasuredRound,
    joined,
)
from sim.analysis.calibration.training.peak_memory import peak
from sim.hardware.kernels.measurements import Measurement
from sim.parallel.job import Job

if TYPE_CHECKING:
    from sim.analysis.calibration.training.trainer import Trainer

_WARM_UP = 2

TimeKernels = Callable[[int, int], Sequence[Measurement]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interleaving:
    """`rounds` of `steps` training steps each; before those of a round `time_kernels(round,
    rounds)` times kernels, unless there is a profile already."""

    rounds: int = 5
    steps: int = 4
    time_kernels: TimeKernels | None = None


def interleaving(steps: int) -> Interleaving:
    """At least so many steps in rounds of about four, an even number of rounds.

    >>> interleaving(20), interleaving(3)
    (Interleaving(rounds=6, steps=4, time_kernels=None), Interleaving(rounds=2, steps=2, time_kernels=None))
    """  # noqa: E501 - a doctest
    rounds = max(2, 2 * round(steps / 8 + 0.49))
    return Interleaving(rounds=rounds, steps=-(-steps // rounds))


def measure_on_rank(
    rank: int, job: Job, device: str, plan: Interleaving, report: Callable[[str], None]
) -> JobMeasurement:
    """Train and time on this rank; the result is the same on all, joined over them."""
    from sim.analysis.calibration.training.trainer import Trainer  # imports torch

    if device == "cpu":
        allocator.keep_freed()
    trainer = Trainer(job, device, rank)
    for _ in range(_WARM_UP):
        trainer.step()
    # Counting a CPU's allocations takes a profiler, so this step is not timed.
    # A graph's memory is a pool of its own, which torch does not count.
    highest = 0.0 if job.stack.graph else peak(trainer.step, lambda: trainer.held, device)
    rounds = []
    for number in range(plan.rounds):
        if rank == 0:
            report(f"round {number + 1} of {plan.rounds}")
        rounds.append(_round(trainer, job.plan.data_parallel, number, plan))
    measurement = JobMeasurement(
        rounds=tuple(rounds),
        parameters=trainer.network.parameter_count,
        peak=highest,
        loss=trainer.loss,
        machine=machine(device),
    )
    return joined(_of_all_ranks(measurement, job.plan.data_parallel))


def _round(trainer: "Trainer", ranks: int, number: int, plan: Interleaving) -> MeasuredRound:
    before = reference_kernels(trainer.device)
    kernels = plan.time_kernels(number, plan.rounds) if plan.time_kernels else ()
    # Gloo's pace drifts with the machine; NCCL's does not, and refuses tensors of the host.
    all_reduces = transfers() if ranks > 1 and trainer.device == "cpu" else ()
    trainer.step()  # not timed: it finds in the caches what the calibration left there
    steps = tuple(trainer.step() for _ in range(plan.steps))
    return MeasuredRound(
        reference=(before + reference_kernels(trainer.device)) / 2,
        steps=steps,
        kernels=tuple(kernels),
        transfers=all_reduces,
    )


def _of_all_ranks(measurement: JobMeasurement, ranks: int) -> list[JobMeasurement]:
    if ranks == 1:
        return [measurement]
    import torch.distributed as dist

    gathered: list[Any] = [None] * ranks
    dist.all_gather_object(gathered, measurement)
    return gathered
