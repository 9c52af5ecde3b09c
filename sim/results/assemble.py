"""From the record of a played step to its result: rates, utilisation, accounts, memory."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from sim.collectives.libraries import backend as backends
from sim.config.dataclass import dataclass
from sim.engine.accounts import (
    Account,
    bubble_fraction,
    critical_role,
    hidden,
)
from sim.engine.record import Record
from sim.engine.timeline import Deferred
from sim.hardware.cluster.price import per_million
from sim.hardware.cluster.topology import Topology
from sim.model.counts import active_parameters, model_flops, parameters
from sim.model.kernels import BYTES, Attention, Gemm, Precision
from sim.model.kinds import experts_of
from sim.parallel.job import Job, stage_kernels
from sim.parallel.memory import Memory, fullest, memories
from sim.parallel.mesh import dividing
from sim.parallel.resolved import lacking
from sim.program.causes import BUBBLE, COMPUTE, LOADING, RECOMPUTE, STRAGGLERS
from sim.program.program import Program
from sim.results.answer import Inputs, said_of
from sim.results.result import Result
from sim.scenario.setup import PlanSetup
from sim.uncertainty.evidence import Campaign, evidence
from sim.uncertainty.intervals import ErrorLaw, Interval, Kernels, Sigmas, interval

if TYPE_CHECKING:
    from sim.engine.link_loads import LinkLoad
    from sim.engine.memory_curve import MemoryCurve
    from sim.uncertainty.device_time import DeviceTime


def report(
    setup: PlanSetup,
    program: Program,
    record: Record,
    spent: Sequence[Account],
    *,
    wall_seconds: float,
    healthy: Record | None = None,
    others: Mapping[str, float] | None = None,
) -> Result:
    """Return the result of a played program; `Result` documents the formulas.

    `spent` are the accounts of its roles. `healthy` is the record without stragglers if the job has
    any. `others` are the step times (s) of fixed orders of passes, for comparison.
    """
    job, step = setup.job, record.step_time
    plan, facts = job.plan, facts_of(setup, program)
    sources = facts.sources
    return Result(
        scenario=setup.name,
        inputs=inputs_of(setup),
        parameters=parameters(job.model),
        active_parameters=active_parameters(job.model),
        **of_step(setup, facts, step, facts.interval(program, step, lambda: record)),
        **account_of(record, spent),
        stages=tuple(_stages(job, record, spent, facts.taken)),
        wall_seconds=wall_seconds,
        warnings=(*_warnings(setup, facts.worst), *(sources.warnings if sources else ())),
        device_time=sources.shares if sources else {"model": 1.0},
        straggler_seconds=step - healthy.step_time if healthy else 0.0,
        dropped=_dropped(job),
        gains={name: seconds / step - 1.0 for name, seconds in (others or {}).items()},
        staleness=tuple(n - 1 for stage in range(plan.pp) if (n := plan.versions(stage))),
        plan=plan,
        schedule=program.schedule,
        memory_curves=Deferred(partial(_curves, program, record, facts.taken)),
        setup=setup,
        host_memory=_host_memory(setup),
        remedies=() if facts.fits else Deferred(partial(_remedies, setup)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """Facts of a step beside its time: the memory `taken` on each stage, model FLOPs (`flops`),
    `executed` FLOPs, the sources of kernels' seconds, and the errors of such steps."""

    taken: Sequence[Memory]
    worst: Memory
    fits: bool
    flops: float
    executed: float
    sources: "DeviceTime | None"
    errors: ErrorLaw
    sigmas: Sigmas | None

    def interval(self, program: Program, step: float, record: Callable[[], Record]) -> Interval:
        """Return the interval of a measured step time (`sim.uncertainty.intervals`)."""
        if self.sigmas is None:
            return interval(step, self.errors)
        from sim.uncertainty.work_shares import work_shares

        kernels = Kernels.of(self.sigmas, work_shares(program, record()))
        return interval(step, self.errors, kernels)


def facts_of(setup: PlanSetup, program: Program) -> StepFacts:
    """Return the facts of the step of a setup with this program."""
    job, topology = setup.job, setup.machine.topology
    taken = memories(job, program)
    worst, sources = fullest(taken), _sources(job)
    return StepFacts(
        taken=taken,
        worst=worst,
        fits=worst.fits(job.device.usable_memory),
        flops=model_flops(job.model, job.plan.global_batch, frozen=job.plan.lora is not None),
        executed=executed_flops(job),
        sources=sources,
        errors=evidence().errors(Campaign.of(job, topology.name)),
        sigmas=_sigmas(job, topology.backend, sources),
    )


def _sources(job: Job) -> "DeviceTime | None":
    """Return the sources of kernels' seconds; None if all are the model's."""
    if not job.device.profile:
        return None
    from sim.uncertainty.device_time import device_time

    return device_time(job)


def _sigmas(job: Job, backend: str, sources: "DeviceTime | None") -> Sigmas | None:
    """Return the errors by the profiles of device and fabric; None if neither was measured."""
    if sources is None and backends.measured(backend) is None:
        return None
    from sim.uncertainty.work_shares import profiled

    return profiled(job, backend, share=sources.shares.get("profile", 0.0) if sources else 0.0)


def of_step(setup: PlanSetup, facts: StepFacts, step: float, sure: Interval) -> dict[str, Any]:
    """Return the memory of a result, and the fields that follow from its step time `step` (s)."""
    plan, job = setup.job.plan, setup.job
    return {
        **expected(step, sure),
        **rates(
            setup.machine.topology,
            step,
            samples=plan.global_batch,
            tokens=plan.global_batch * job.model.tokens,
            flops=facts.flops,
            executed=facts.executed,
            precision=plan.precision,
        ),
        "memory_per_gpu": _parts(facts.worst),
        "capacity": job.device.usable_memory,
        "fits": facts.fits,
    }


def expected(step: float, sure: Interval) -> dict[str, Any]:
    """Return the simulated step time (s), and the interval of a measured step time."""
    return {
        "step_time": step,
        "step_time_low": sure.low,
        "step_time_expected": sure.expected,
        "step_time_high": sure.high,
        "interval": sure.parts,
    }


def rates(
    topology: Topology,
    step: float,
    *,
    samples: float,
    tokens: float,
    flops: float,
    executed: float,
    precision: Precision,
) -> dict[str, Any]:
    """Rates of a job on a whole cluster, from the time (s), the samples, the tokens, the model
    FLOPs and the `executed` FLOPs of a step. MFU and HFU refer to the dense peak of `precision`.
    For precisions of less than two bytes, `mfu_of_peaks` also has the MFU of half precision."""
    gpus, device = topology.gpus, topology.device
    peak, half = gpus * device.peak_rate(precision), device.half
    others = {half: flops / (step * gpus * device.peak_rate(half))} if BYTES[precision] < 2 else {}
    return {
        "ranks": gpus,
        "samples_per_second": samples / step,
        "tokens_per_second": tokens / step,
        "tokens_per_second_per_gpu": tokens / step / gpus,
        "dollars_per_million_tokens": per_million(topology.price, gpus, tokens / step),
        "mfu": flops / (step * peak),
        "mfu_of_peaks": {precision: flops / (step * peak), **others},
        "hfu": executed / (step * peak),
        "model_tflops_per_gpu": flops / (step * gpus) / 1e12,
    }


def account_of(record: Record, spent: Sequence[Account]) -> dict[str, Any]:
    """Return the fields of a result that explain its step time; `spent` are the roles' accounts."""
    critical = critical_role(record).index
    return {
        "breakdown": dict(spent[critical].items()),
        "critical_path": Deferred(partial(_critical_rows, record)),
        "hidden": dict(hidden(record, critical, spent[critical]).items()),
        "bubble_fraction": bubble_fraction(record, spent),
        "loading": loading_of(record, spent[critical]),
        "roles": len(record.roles),
        "operations": record.steps,
        "events": record.events,
        "engine": record.engine,
        "timeline": record.timeline,
        "links": Deferred(partial(_links, record)),
    }


def _critical_rows(record: Record) -> list[dict[str, Any]]:
    from sim.results.critical_rows import critical_rows

    return critical_rows(record)


def _links(record: Record) -> "list[LinkLoad]":
    from sim.engine.link_loads import link_loads

    return link_loads(record)


def loading_of(record: Record, account: Account) -> dict[str, Any] | None:
    """Return how long a step waits for samples, and for which links; None without a loader."""
    if LOADING not in {cause for cause, _ in record.kinds}:
        return None
    from sim.engine.link_loads import narrowest

    waits = account.get(LOADING, 0.0)
    limit = narrowest(record, LOADING, waits=waits > 0.0)
    if limit is None:
        return None
    return {
        "waits": waits,
        "limit": limit.kind,
        "seconds": limit.seconds,
        "busy": limit.busy,
    }


def inputs_of(setup: PlanSetup) -> Inputs:
    """Return the inputs of a result."""
    job, topology = setup.job, setup.machine.topology
    return Inputs(
        model=setup.model or job.model.name,
        cluster=topology.name,
        device=job.device.name,
        gpus=topology.gpus,
        stack=job.stack.name,
        precision=job.plan.precision,
        optimizer=job.plan.optimizer,
        batch=job.plan.global_batch,
        tokens=job.model.tokens,
        plan=said_of(job.plan),
        change=dict(setup.change),
        price=str(topology.price or ""),
        notes=(
            *job.model.notes,
            *topology.odd,
            *lacking(job.plan, job.stack),
            *(job.loading.notes if job.loading else ()),
        ),
    )


def executed_flops(job: Job) -> float:
    """Return FLOPs of the matrix products of one step of the whole job, as kernels execute them.

    Recomputed products count again. Fused attention leaves out products that a causal mask or a
    window hides, and repeats Q K' in its backward pass (Dao 2023, section 2.3).
    """
    plan = job.plan
    stages = {chunks: stage for stage, chunks in enumerate(job.chunks)}  # one of equal stages
    of_chunks = {chunks: _flops(job, stage) for chunks, stage in stages.items()}
    once = sum(
        of_chunks[chunks] / max(len(copies), 1)
        for chunks, copies in zip(job.chunks, job.copies, strict=True)
    )
    ranks = plan.degree(("tp", *dividing("sequence")))
    return once * ranks * plan.global_batch / plan.microbatch


def _flops(job: Job, stage: int) -> float:
    """Return FLOPs of the matrix products of a stage's microbatch."""
    products = (pair for pair in stage_kernels(job, stage) if isinstance(pair[0], Gemm | Attention))
    return sum(often * kernel.flops for kernel, often in products)


def _stages(
    job: Job, record: Record, spent: Sequence[Account], taken: Sequence[Memory]
) -> Iterator[dict[str, Any]]:
    """A row for each pipeline stage: its layers, its memory, and its slowest rank's seconds."""
    slowest_last = sorted(record.roles, key=lambda role: (role.slowdown, -role.index))
    shown = {role.stage: role.index for role in slowest_last}
    for stage, chunks in enumerate(job.chunks):
        account = spent[shown[stage]]
        yield {
            "stage": stage,
            "name": f"stage {stage}",
            "layers": sum(chunk.layers for chunk in chunks),
            "compute": account.get(COMPUTE, 0.0) + account.get(RECOMPUTE, 0.0),
            "bubble": account.get(BUBBLE, 0.0),
            "stragglers": account.get(STRAGGLERS, 0.0),
            "memory": taken[stage].reserved,
        }


def _dropped(job: Job) -> float:
    """Return the share of tokens that are dropped because their experts are full."""
    if not experts_of(job.model):
        return 0.0
    from sim.model.experts.layer import dropped

    return dropped(job.execution)


def _host_memory(setup: PlanSetup) -> float:
    if not setup.job.plan.offload:
        return 0.0
    from sim.parallel.offload import host_memory

    return host_memory(setup.job, setup.machine.topology)


def _remedies(setup: PlanSetup) -> Sequence[str]:
    from sim.results.memory_advice import remedies

    return remedies(setup)


def _curves(program: Program, record: Record, taken: Sequence[Memory]) -> "list[MemoryCurve]":
    from sim.engine.memory_curve import memory_curve

    return [
        memory_curve(program, record, stage, memory.fragmented)
        for stage, memory in enumerate(taken)
    ]


def _parts(memory: Memory) -> dict[str, float]:
    """Bytes by part and their total, with the fragmentation that the allocator cannot use."""
    lost = {"fragmentation": memory.fragmented} if memory.fragmented else {}
    return {**memory.parts, **lost, "total": memory.reserved}


def _warnings(setup: PlanSetup, worst: Memory) -> Iterator[str]:
    """Yield warnings for a reader who wants to rely on the result."""
    plan, topology = setup.job.plan, setup.machine.topology
    if (measured := setup.job.device.measured) is not None:
        yield from measured.doubts
    fabric = backends.measured(setup.machine.topology.backend)
    for residual in fabric.residuals if fabric else ():
        from sim.hardware.kernels import profile as profiles

        if residual.p95 > profiles.BUSY:
            yield profiles.busy(setup.machine.topology.backend, residual.name, residual.p95)
    if not worst.fits(topology.device.usable_memory):
        yield too_big(worst, topology.device.usable_memory)
    if plan.tp > topology.gpus_per_node:
        yield (
            f"tp = {plan.tp} spans nodes of {topology.gpus_per_node} GPUs: "
            "tensor parallelism over the network is slow"
        )
    sizes = [chunk.layers for chunks in setup.job.chunks for chunk in chunks]
    inner = sorted(set(sizes[1:-1]))  # ends may have one layer fewer
    if plan.interleave > 1 and plan.layers is None and len(inner) > 1:
        yield (
            f"{len(sizes)} chunks of {inner[0]} to {inner[-1]} layers: most frameworks interleave "
            "only equal chunks, unless plan.layers gives the layers of each chunk"
        )
    if plan.pipeline != plan.schedule and plan.pp > 1:
        yield (
            f"1f1b with interleave = {plan.interleave} ran as the interleaved schedule; set "
            "interleave = 1 for 1F1B with one chunk of the model on each stage"
        )
    if plan.zero and plan.degree(dividing("batch", "sequence")) == 1:
        yield "zero has no effect without data parallelism"


def too_big(worst: Memory, room: float) -> str:
    """Return the warning for a job that does not fit."""
    from sim.config.readable import human_bytes

    held, offered = human_bytes(worst.reserved), human_bytes(room)
    return f"the job needs {held} on a GPU that offers {offered}: it would not run"
