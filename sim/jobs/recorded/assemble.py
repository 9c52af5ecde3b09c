"""How does the record of a played recording become a result?"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from sim.config.readable import human_bytes
from sim.engine.accounts import Account
from sim.engine.memory_curve import MemoryCurve
from sim.engine.record import Record
from sim.engine.timeline import Deferred
from sim.jobs.recorded.allocator_settings import VARIABLES
from sim.jobs.recorded.curve import curve
from sim.jobs.recorded.host import coverage
from sim.jobs.recorded.memory import BESIDE, Memory, Peak, fullest
from sim.jobs.recorded.program import EventPlaces
from sim.jobs.recorded.recording import communicates
from sim.jobs.recorded.setup import Recorded, host_of
from sim.jobs.recorded.work import WorkDone, work_of
from sim.model.kernels import Precision
from sim.program.causes import BUBBLE, COMPUTE, RECOMPUTE
from sim.results.answer import Inputs
from sim.results.assemble import account_of, expected, rates
from sim.results.result import Result
from sim.scenario.settings import flat
from sim.uncertainty.evidence import Campaign, evidence

_LINES = 3  # a warning lists this many lines, which hold the most memory at the peak


def report(
    setup: Recorded,
    noted: Sequence[EventPlaces],
    record: Record,
    spent: Sequence[Account],
    *,
    wall_seconds: float,
) -> Result:
    """The result of a record. For each stage, `noted` gives the places of its recording's events.
    `Result` states the formulas, `WorkDone` the formulas of FLOPs."""
    topology, step = setup.machine.topology, record.step_time
    recordings, axes = [recording for recording, _ in setup.stages], setup.stages[0][1]
    work = [work_of(recording, topology.device) for recording in recordings]
    replicas = topology.gpus // len(recordings)
    inputs = _inputs(setup, work[0])
    parameters = sum(recording.parameters for recording in recordings)
    peaks = [memory.peak() for memory in setup.memories]
    return Result(
        scenario=setup.name,
        inputs=inputs,
        parameters=parameters,
        active_parameters=parameters,
        **expected(step, evidence().interval(step, _campaign(setup, work[0].precision))),
        **rates(
            topology,
            step,
            samples=work[0].samples * axes.data_ranks // axes.sequence_ranks,
            tokens=work[0].tokens * axes.data_ranks,
            flops=sum(each.model_flops for each in work) * replicas,
            executed=sum(each.executed_flops for each in work) * replicas,
            precision=work[0].precision,
        ),
        **account_of(record, spent),
        stages=tuple(map(_stage, range(len(recordings)), spent, peaks)),
        wall_seconds=wall_seconds,
        warnings=tuple(dict.fromkeys(_warnings(setup))),
        memory_curves=Deferred(partial(_curves, setup, noted, record)),
        capacity=topology.device.usable_memory,
        setup=setup,
        **_room(setup.memories, peaks),
    )


def _room(memories: Sequence[Memory], peaks: Sequence[Peak]) -> dict[str, Any]:
    """Return entries of the result: whether the script fits (None: no memory was recorded), the
    memory of the fullest GPU, and remedies."""
    known = all(peak.allocated for peak in peaks)
    fits = all(peak.failure is None for peak in peaks) if known else None
    worst = fullest(memories).peak()
    beside = {BESIDE: worst.reserved - worst.allocated, "total": worst.reserved}
    return {
        "fits": fits,
        "memory_per_gpu": {**worst.parts, **beside},
        "remedies": () if fits is not False else Deferred(partial(_remedies, memories)),
    }


def _inputs(setup: Recorded, done: WorkDone) -> Inputs:
    """The inputs of the result. If ranks do not communicate, each trains its own model."""
    topology, (recording, axes) = setup.machine.topology, setup.stages[0]
    together = axes.data_ranks if communicates(recording.events, recording.groups) else 1
    compiled = any(operator.name.startswith("inductor.") for operator in recording.operators)
    return Inputs(
        model=" ".join((recording.script, *recording.arguments)),
        cluster=topology.name,
        device=topology.device.name,
        gpus=topology.gpus,
        stack=setup.stack.name + " and torch.compile" * compiled,
        precision=done.precision,
        batch=done.samples * together // axes.sequence_ranks,
        tokens=done.tokens // max(done.samples, 1),
        plan=dict(axes.mesh),
        change=dict(flat(setup.scenario.change)),
        price=str(topology.price or ""),
    )


def _campaign(setup: Recorded, precision: Precision) -> Campaign:
    """The features by which similar measured runs are found."""
    topology = setup.machine.topology
    return Campaign(
        stack=setup.stack.name,
        device=topology.device.name,
        generation=topology.device.generation,
        topology=topology.name,
        precision=precision,
        work="recorded",
    )


def _stage(number: int, spent: Account, peak: Peak) -> dict[str, Any]:
    return {
        "stage": number,
        "name": f"stage {number}",
        "layers": 0,
        "compute": spent.get(COMPUTE, 0.0) + spent.get(RECOMPUTE, 0.0),
        "bubble": spent.get(BUBBLE, 0.0),
        "memory": peak.reserved,
    }


def _curves(setup: Recorded, noted: Sequence[EventPlaces], record: Record) -> list[MemoryCurve]:
    rows = zip(setup.memories, noted, setup.seconds(), strict=True)
    return [curve(*row, record, stage) for stage, row in enumerate(rows)]


def _remedies(memories: Sequence[Memory]) -> list[str]:
    """Settings of the allocator with which the script fits."""
    grown = [memory.with_expandable_segments() for memory in memories]
    fits = all(memory.failure is None for memory in grown)
    return [f"{VARIABLES[0]} = expandable_segments:True"] if fits else []


def _warnings(setup: Recorded) -> Iterator[str]:
    """Facts that a reader should know before believing the result."""
    for recording, _ in setup.stages:
        yield from recording.notes
    yield from _measured_host(setup)
    yield from _of_memory(fullest(setup.memories), setup.machine.topology.device.usable_memory)


def _measured_host(setup: Recorded) -> Iterator[str]:
    """Yield a sentence on the share of launches whose host time a profile has measured."""
    device = setup.machine.topology.device
    found = coverage([recording for recording, _ in setup.stages], host_of(setup.stack, device))
    if found is not None and device.measured is not None:
        software = device.measured.origin.provenance.get("torch", "")
        where = f"profile {device.profile}{f' (torch {software})' if software else ''}"
        rest = f"; the stack times the others ({', '.join(found.others)})" if found.others else ""
        yield f"{where} has measured host times for {found.share:.0%} of launches{rest}"


def _of_memory(memory: Memory, capacity: float) -> Iterator[str]:
    """Yield warnings if the peak lies before the step, or if the allocator runs out of memory."""
    worst = memory.peak()
    in_step = memory.peak(since=0).allocated
    if in_step < worst.allocated:
        yield (
            f"memory is fullest before the recorded step, at {worst.line}: "
            f"{human_bytes(worst.allocated)} allocated; the step itself allocates at most "
            f"{human_bytes(in_step)}"
        )
    if (failure := worst.failure) is not None:
        wanted, held = human_bytes(failure.bytes), human_bytes(failure.allocated)
        cached = human_bytes(failure.reserved - failure.allocated)
        yield (
            f"out of memory at {failure.line}: it asks for {wanted}, but {held} are allocated and "
            f"{cached} are cached in pieces, on a GPU that offers {human_bytes(capacity)}"
        )
        for line, size in list(worst.lines.items())[:_LINES]:
            yield f"{human_bytes(size)} of the peak come from {line}"
    elif worst.retries:
        often = "once" if worst.retries == 1 else f"{worst.retries} times"
        yield (
            f"the allocator gives cached memory back to the GPU {often}; the step time leaves out "
            "the host's wait for the GPU at such a moment"
        )
