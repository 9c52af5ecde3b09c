"""From a timeline to a result: rates, utilisation, accounts, memory."""

from collections.abc import Iterator, Sequence
from typing import Any

from sim.config.units import human_bytes
from sim.engine.accounts import Account, bubble_fraction, critical_role
from sim.engine.folded import Score
from sim.engine.timeline import Timeline
from sim.model.kernels import Attention, Gemm, Item, Kernel, Overlap
from sim.parallel.footprint import footprints
from sim.parallel.memory import Memory
from sim.parallel.work import Job
from sim.program import Collective
from sim.results.result import Result
from sim.scenario.setup import Setup
from sim.uncertainty.evidence import evidence
from sim.uncertainty.intervals import Interval, Kernels
from sim.uncertainty.kernel_sources import device_time
from sim.uncertainty.work_shares import profiled, work_shares


def report(
    setup: Setup,
    score: Score,
    timeline: Timeline,
    spent: Sequence[Account],
    *,
    wall_seconds: float,
    healthy: Timeline | None = None,
) -> Result:
    """The result of a played score; formulas stand with `Result`.

    `spent` are the accounts of its roles, `healthy` the timeline without stragglers if it has any.
    """
    job, step = setup.job, timeline.end
    plan, gpus = job.plan, setup.machine.topology.gpus
    flops = job.model.model_flops(plan.global_batch)
    peak = gpus * job.device.peak_rate(plan.precision)
    tokens = plan.global_batch * job.model.seq / step
    worst = max(footprints(job), key=lambda memory: memory.reserved)
    sources = device_time(job)
    sure = _interval(setup, score, timeline, sources.shares.get("profile", 0.0))
    return Result(
        scenario=setup.name,
        step_time=step,
        step_time_low=sure.low,
        step_time_high=sure.high,
        interval=sure.parts,
        samples_per_second=plan.global_batch / step,
        tokens_per_second=tokens,
        tokens_per_second_per_gpu=tokens / gpus,
        mfu=flops / (step * peak),
        hfu=(flops + recomputed_flops(job)) / (step * peak),
        model_tflops_per_gpu=flops / (step * gpus) / 1e12,
        breakdown=spent[critical_role(timeline).index],
        bubble_fraction=bubble_fraction(timeline, spent),
        stages=tuple(_stages(setup, timeline, spent)),
        ranks=gpus,
        roles=len(timeline.roles),
        operations=sum(part.steps for part in score.parts),
        events=timeline.events,
        wall_seconds=wall_seconds,
        warnings=(*_warnings(setup, worst), *sources.warnings),
        device_time=sources.shares,
        straggler_seconds=step - healthy.end if healthy else 0.0,
        plan=plan,
        timeline=timeline,
        memory_per_gpu=_parts(worst),
        capacity=job.device.usable_memory,
        fits=worst.fits(job.device.usable_memory),
    )


def _interval(setup: Setup, score: Score, timeline: Timeline, profile: float) -> Interval:
    """Where the measured step time would lie; `sim.uncertainty.intervals` says how that is known.

    `profile` is the share of the device's time that its profile says.
    """
    job, kernels = setup.job, None
    sigmas = profiled(job, setup.machine.topology.backend, share=profile)
    if sigmas is not None:
        kernels = Kernels.of(sigmas, work_shares(job, score, timeline))
    stack, device = job.stack.name, job.device.name
    return evidence().interval(timeline.end, stack=stack, device=device, kernels=kernels)


def recomputed_flops(job: Job) -> float:
    """FLOPs of forward products that run a second time, in one step of the whole job.

    Counted as model FLOPs are: attention in full also where it is causal.
    """
    plan = job.plan
    once = sum(_full_flops(kernel) for item in job.layer.recompute for kernel in _kernels(item))
    return once * job.model.layers * plan.tp * plan.cp * plan.global_batch / plan.microbatch


def _kernels(item: Item) -> tuple[Kernel, ...]:
    if isinstance(item, Overlap):
        return item.kernels
    return () if isinstance(item, Collective) else (item,)


def _full_flops(kernel: Kernel) -> float:
    if isinstance(kernel, Attention):
        return kernel.flops * (2.0 if kernel.causal else 1.0)
    return kernel.flops if isinstance(kernel, Gemm) else 0.0


def _stages(setup: Setup, timeline: Timeline, spent: Sequence[Account]) -> list[dict[str, Any]]:
    """One row a pipeline stage: what it holds and where its seconds go (its lowest rank's)."""
    taken = footprints(setup.job)
    rows: list[dict[str, Any]] = []
    for stage, chunks in enumerate(setup.job.chunks):
        role = next(role for role in timeline.roles if role.stage == stage)
        account = spent[role.index]
        rows.append(
            {
                "stage": stage,
                "name": f"stage {stage}",
                "layers": sum(chunk.layers for chunk in chunks),
                "compute": account.get("compute", 0.0) + account.get("recompute", 0.0),
                "bubble": account.get("bubble", 0.0),
                "stragglers": account.get("stragglers", 0.0),
                "memory": taken[stage].reserved,
            }
        )
    return rows


def _parts(memory: Memory) -> dict[str, float]:
    """Bytes by part and their total, what the allocator cannot give back included."""
    lost = {"fragmentation": memory.fragmented} if memory.fragmented else {}
    return {**memory.parts, **lost, "total": memory.reserved}


def _warnings(setup: Setup, worst: Memory) -> Iterator[str]:
    """What a reader should know before believing the number."""
    plan, topology = setup.job.plan, setup.machine.topology
    if not worst.fits(topology.device.usable_memory):
        held, room = human_bytes(worst.reserved), human_bytes(topology.device.usable_memory)
        yield f"the job needs {held} on a GPU that offers {room}: it would not run"
    if plan.tp > topology.gpus_per_node:
        yield (
            f"tp = {plan.tp} spans nodes of {topology.gpus_per_node} GPUs: "
            "tensor parallelism over the network is slow"
        )
    if plan.interleave > 1 and plan.schedule == "1f1b" and plan.pp > 1:
        yield "interleave > 1: the interleaved schedule was taken"
    if plan.zero and plan.copies == 1:
        yield "zero has no effect without data parallelism"
