"""The result of a recorded step that was played."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain

from sim.config.units import human_bytes
from sim.engine.accounts import Account, bubble_fraction, critical_role
from sim.engine.hidden import hidden
from sim.engine.link_loads import link_loads
from sim.engine.machine import Machine
from sim.engine.memory_curve import MemoryCurve, memory_curve
from sim.engine.record import Record
from sim.engine.timeline import Deferred
from sim.hardware.cluster.price import per_million
from sim.hardware.stack import Stack
from sim.program.causes import BUBBLE, COMPUTE, RECOMPUTE
from sim.program.program import Program
from sim.recording.allocator_settings import VARIABLES
from sim.recording.axes import Axes
from sim.recording.memory import BESIDE, Memory, fullest
from sim.recording.recording import Recording
from sim.recording.work import work_of
from sim.results.answer import Inputs
from sim.results.assemble import critical_rows
from sim.results.result import Result
from sim.uncertainty.campaign import Campaign
from sim.uncertainty.evidence import evidence

_LINES = 3  # of a script, that hold most at the peak


def report(
    name: str,
    stages: Sequence[tuple[Recording, Axes]],
    written: Program,
    memories: Sequence[Memory],
    stack: Stack,
    on: Machine,
    record: Record,
    spent: Sequence[Account],
    *,
    wall_seconds: float,
    notes: Sequence[str] = (),
) -> Result:
    """The result of recordings, one a stage, of which a program was `written` and played; formulas
    stand with `Result`.

    FLOPs are those of `WorkDone`. `notes` come with its warnings.
    """
    recordings, axes = [own for own, _ in stages], stages[0][1]
    step, gpus, device = record.step_time, on.topology.gpus, on.topology.device
    done = [work_of(own) for own in recordings]
    replicas = gpus // len(recordings)
    flops = sum(own.model_flops for own in done) * replicas
    executed = sum(own.executed_flops for own in done) * replicas
    precision = done[0].precision
    sequences = done[0].samples * axes.data_ranks // axes.sequence_ranks
    tokens = done[0].tokens * axes.data_ranks
    full = gpus * device.peak_rate(precision)
    peaks, most = [own.peak() for own in memories], fullest(memories)
    worst = most.peak()
    critical = critical_role(record).index
    campaign = Campaign(
        stack=stack.name,
        device=device.name,
        generation=device.generation,
        topology=on.topology.name,
        precision=precision,
        work="dense",
    )
    sure = evidence().interval(step, campaign)
    room = device.usable_memory
    fits = all(one.failure is None for one in peaks)
    return Result(
        scenario=name,
        inputs=Inputs(
            model=" ".join((recordings[0].script, *recordings[0].arguments)),
            cluster=on.topology.name,
            device=device.name,
            gpus=gpus,
            stack=stack.name,
            precision=precision,
            batch=sequences,
            tokens=done[0].tokens // max(done[0].samples, 1),
            plan=dict(axes.mesh),
            price=str(on.topology.price or ""),
        ),
        parameters=sum(own.parameters for own in recordings),
        active_parameters=sum(own.parameters for own in recordings),
        step_time=step,
        step_time_low=sure.low,
        step_time_expected=sure.expected,
        step_time_high=sure.high,
        interval=sure.parts,
        samples_per_second=sequences / step,
        tokens_per_second=tokens / step,
        tokens_per_second_per_gpu=tokens / step / gpus,
        dollars_per_million_tokens=per_million(on.topology.price, gpus, tokens / step),
        mfu=flops / (step * full),
        hfu=executed / (step * full),
        model_tflops_per_gpu=flops / (step * gpus) / 1e12,
        breakdown=dict(spent[critical].items()),
        critical_path=Deferred(partial(critical_rows, record)),
        hidden=dict(hidden(record, critical, spent[critical]).items()),
        bubble_fraction=bubble_fraction(record, spent),
        stages=tuple(
            {
                "stage": number,
                "name": f"stage {number}",
                "layers": 0,
                "compute": own.get(COMPUTE, 0.0) + own.get(RECOMPUTE, 0.0),
                "bubble": own.get(BUBBLE, 0.0),
                "memory": peaks[number].reserved,
            }
            for number, own in enumerate(spent[: len(recordings)])
        ),
        ranks=gpus,
        roles=len(record.roles),
        operations=record.steps,
        events=record.events,
        engine=record.engine,
        wall_seconds=wall_seconds,
        warnings=tuple(
            dict.fromkeys((*chain(*(o.notes for o in recordings)), *notes, *_warnings(most, room)))
        ),
        remedies=() if fits else Deferred(partial(_remedies, memories)),
        timeline=record.timeline,
        memory=Deferred(partial(_curves, written, record)),
        links=Deferred(partial(link_loads, record)),
        memory_per_gpu={
            **worst.parts,
            BESIDE: worst.reserved - worst.allocated,
            "total": worst.reserved,
        },
        capacity=room,
        fits=fits,
    )


def _curves(written: Program, record: Record) -> list[MemoryCurve]:
    return [memory_curve(written, record, stage) for stage in range(len(written.stages))]


def _remedies(memories: Sequence[Memory]) -> list[str]:
    """Settings of the allocator with which the script fits."""
    grown = [own.with_expandable_segments() for own in memories]
    fits = all(own.failure is None for own in grown)
    return [f"{VARIABLES[0]} = expandable_segments:True"] if fits else []


def _warnings(memory: Memory, capacity: float) -> Iterator[str]:
    """What a reader should know before believing the number."""
    worst = memory.peak()
    in_step = memory.peak(since=0).allocated
    if in_step < worst.allocated:
        yield (
            f"memory is fullest before the recorded step, at {worst.line}: "
            f"{human_bytes(worst.allocated)} allocated; the step itself has at most "
            f"{human_bytes(in_step)}"
        )
    if (failure := worst.failure) is not None:
        wanted, held = human_bytes(failure.bytes), human_bytes(failure.allocated)
        cached = human_bytes(failure.reserved - failure.allocated)
        yield (
            f"out of memory at {failure.line}: {wanted} wanted, {held} "
            f"allocated and {cached} cached in pieces, on a GPU that offers {human_bytes(capacity)}"
        )
        for line, size in list(worst.lines.items())[:_LINES]:
            yield f"{human_bytes(size)} of the peak come from {line}"
    elif worst.retries:
        often = "once" if worst.retries == 1 else f"{worst.retries} times"
        yield (
            f"the allocator gives back what it has cached {often}, for which the host waits for "
            "the GPU; that is not in the step"
        )
