"""How does a run of workers become its outcome?"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import isfinite, sqrt
from typing import Any

import numpy as np

from sim.config.readable import human_bytes, human_seconds
from sim.engine.timeline import Role
from sim.jobs.sharing.learning.task import accuracy
from sim.jobs.sharing.memory import Holder, holders
from sim.jobs.sharing.outcome import Outcome
from sim.jobs.sharing.plan import Sharing
from sim.jobs.sharing.setup import SharingSetup
from sim.jobs.sharing.update_record import CurvePoint, UpdateRecord, setback
from sim.jobs.sharing.worker import Worker
from sim.jobs.sharing.worker_pool import WorkerPool
from sim.program import causes
from sim.results.answer import Inputs, said_of
from sim.uncertainty.evidence import evidence

LABEL = "the effect of staleness and averaging on this task, not a forecast of a large model's loss"
_SHARES: tuple[str, ...] = (
    causes.COMPUTE,
    causes.OPTIMIZER,
    causes.COMPRESSION,
    causes.COMMUNICATION,
    causes.SERVER,
    causes.WAITING,
    causes.DOWN,
)
_BUSIEST = 16
_ROUNDING = 1e-12
_NEWS = 1.05  # more than this many times the samples asked for cause a warning
_MUCH = 0.1  # a larger difference in workers' shares of communication time causes a warning
_UNSTABLE = 0.5  # training is unstable if its loss rises again by this share of its whole fall


def outcome(
    setup: SharingSetup, pool: WorkerPool, healthy: WorkerPool | None, *, wall_seconds: float
) -> Outcome:
    """Return the outcome of `pool` after its run. `healthy` is a run without anything slow, or None
    if the run itself had nothing slow."""
    cluster, record, end = pool.cluster, pool.record, pool.end
    weights = np.asarray(pool.shared.weights if pool.shared else pool.average())
    learnt, learning = bool(weights.size), setup.plan.learning
    loss = pool.task.loss(weights) if learnt else None
    rows = tuple(_row(worker, end) for worker in pool.workers)
    gpus = len(setup.workers[0].gpus)
    topology = setup.machine.topology
    held = list(holders(setup.plan, setup.workloads, setup.servers, topology, gpus))
    result = Outcome(
        scenario=setup.name,
        inputs=replace(inputs_of(setup), batch=_batch(setup, record)),
        method=setup.plan.title,
        worker=setup.plan.worker_name(topology.gpus_per_node),
        **_measured(setup, end, rows),
        updates=record.updates,
        samples=record.samples,
        updates_per_second=record.updates / end if end else 0.0,
        samples_per_second=record.samples / end if end else 0.0,
        dropped=record.dropped,
        lost=record.lost,
        shares={key: sum(row[key] for row in rows) / len(rows) for key in (*_SHARES, "idle")},
        staleness=_staleness(pool),
        workers=rows,
        links=tuple(_busiest_links(pool, end)),
        bytes=cluster.bytes,
        straggler_seconds=_lost_seconds(pool, healthy, setup.plan.copies),
        loss=loss,
        accuracy=accuracy(pool.task, weights) if learnt else None,
        diverged=loss is not None and not isfinite(loss),
        spread=_spread(pool) if learnt else {},
        rate=_rate(setup) if learnt else "",
        reach=setup.plan.reach(len(setup.workers)) if learnt and learning else None,
        curve=tuple(record.curve),
        time_to_target=None,
        task=pool.task.name,
        label=LABEL if learnt else "",
        timeline=cluster.timeline(_roles(pool), end),
        topology=topology,
        events=cluster.events,
        wall_seconds=wall_seconds,
        memory=tuple(_holder(memory) for memory in held),
        fits=all(memory.fits for memory in held),
        step=dict(setup.workloads[0].spent),
        to_target=_to_target(setup, record.samples / end if end else 0.0),
        warnings=(
            *_too_small(held),
            *_far_servers(setup, pool, rows),
            *_warnings(pool),
            *_unstruck(setup.plan, end),
            *_unstable(record.curve),
        ),
    )
    target = learning.target if learning else None
    if target is None:
        return result
    return replace(result, target=target, time_to_target=result.time_to(target))


def _measured(
    setup: SharingSetup, seconds: float, rows: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The time of a run (s), and the interval in which a measured time would lie. Seconds of
    measured steps count as certain; all other seconds may err as much as times of synchronous
    steps."""
    certain = 0.0
    if setup.plan.times is not None:
        certain = sum(row[causes.COMPUTE] + row[causes.OPTIMIZER] for row in rows) / len(rows)
    sure = evidence().interval(seconds * (1.0 - certain), setup.campaign)
    bounds = {key: seconds * certain + getattr(sure, key) for key in ("low", "expected", "high")}
    return {
        "time": seconds,
        **{f"time_{key}": bound for key, bound in bounds.items()},
        "interval": sure.parts,
    }


def inputs_of(setup: SharingSetup) -> Inputs:
    """The inputs of a setup, for its answer."""
    topology = setup.machine.topology
    return Inputs(
        model=setup.model,
        cluster=topology.name,
        device=topology.device.name,
        gpus=topology.gpus,
        stack=setup.stack,
        precision=setup.plan.precision,
        optimizer=setup.plan.optimizer,
        batch=setup.batch,
        plan=said_of(setup.plan),
        change=dict(setup.change),
        price=str(topology.price or ""),
        notes=setup.notes,
    )


def _batch(setup: SharingSetup, record: UpdateRecord) -> float:
    """The mean number of samples of an update, as counted in a run. Where workers update one by
    one, or after local steps, it differs from the samples whose gradients a step averages."""
    return record.samples / record.updates if record.updates else setup.batch


def _spread(pool: WorkerPool) -> dict[str, float]:
    """The mean and worst loss of the workers' own weights, and how far apart these weights are."""
    held = [np.asarray(worker.weights) for worker in pool.workers if not worker.lost]
    if not held:
        return {}
    losses, middle = [pool.task.loss(weights) for weights in held], pool.average()
    distances = [float(np.sum((weights - middle) ** 2)) for weights in held]
    return {
        "worker": sum(losses) / len(losses),
        "worst": max(losses),
        "distance": sqrt(sum(distances) / len(distances)),
    }


def _rate(setup: SharingSetup) -> str:
    """The learning rate and the law that it follows, in words."""
    plan, learning = setup.plan, setup.plan.learning
    if learning is None:
        return ""
    n, rate = plan.averaged(len(setup.workers)), plan.rate(len(setup.workers))
    of = "1 gradient" if n == 1.0 else f"{n:g} gradients"
    start = "0" if learning.scaling == "none" else f"{learning.rate:g}"
    warmed = f", warmed up from {start} in {learning.warmup:,} steps" if learning.warmup else ""
    if learning.schedule != "constant":
        warmed += f", then {learning.schedule}"
        warmed += f" over {learning.span:,} steps" if learning.span else ""
    if learning.scaling == "none":
        return f"{rate:g} ({of} averaged, not scaled){warmed}"
    times = f"sqrt({n:g})" if learning.scaling == "sqrt" else f"{n:g}"
    law = f"{learning.rate:g} x {times} for {of} averaged ({learning.scaling} scaling)"
    return f"{rate:g} = {law}{warmed}"


def _to_target(setup: SharingSetup, pace: float) -> dict[str, float]:
    """Samples and seconds to the target of `[sharing.efficiency]`, at `pace` samples a second."""
    plan, batch = setup.plan, setup.batch
    if plan.efficiency is None or not pace:
        return {}
    samples = plan.efficiency.samples(batch)
    return {"batch": batch, "samples": samples, "seconds": samples / pace}


def _holder(holder: Holder) -> dict[str, Any]:
    parts = {name: size for name, size in holder.parts.items() if size}
    return {"name": holder.name, "parts": parts, "total": holder.total, "room": holder.room}


def _too_small(held: Iterable[Holder]) -> Iterator[str]:
    for memory in held:
        if not memory.fits:
            has, needs = human_bytes(memory.room), human_bytes(memory.total)
            yield f"{memory.name} needs {needs}, but has {has}: it would not run"


def _far_servers(
    setup: SharingSetup, pool: WorkerPool, rows: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """Warn if servers are in fewer regions than the workers are, and some workers communicate much
    longer than others."""
    if setup.plan.regions is None or not setup.servers:
        return
    region = pool.cluster.routes.region
    home, serving = ({region(rank) for rank in ones} for ones in (setup.workers, setup.servers))
    sent = [row[causes.COMMUNICATION] for row in rows]
    if len(serving) < len(home) and max(sent) > min(sent) + _MUCH:
        yield (
            f"servers are in {len(serving)} of {len(home)} regions: some workers communicate for "
            f"{min(sent):.0%} of their time, others for {max(sent):.0%}; shards = {len(home)} puts "
            "a server into each region"
        )


def _unstable(curve: Sequence[CurvePoint]) -> Iterator[str]:
    """Warn if the loss rises by more than half of its whole fall, unless training diverges."""
    if curve and isfinite(curve[-1].loss) and (back := setback(curve)) > _UNSTABLE:
        yield (
            f"training is unstable: the loss rises again by {back:.2g} times its whole fall; "
            "a lower sharing.learning.rate may help"
        )


def _row(worker: Worker, end: float) -> dict[str, Any]:
    """A worker's seconds as shares of the run."""
    seconds = worker.seconds_until(end)
    shares = {cause: seconds[cause] / end if end else 0.0 for cause in _SHARES}
    idle = 1.0 - sum(shares.values())
    idle = 0.0 if abs(idle) < _ROUNDING else idle
    return {"rank": worker.rank, "steps": worker.steps, **shares, "idle": idle}


def _staleness(pool: WorkerPool) -> dict[str, Any]:
    counted = dict(sorted(pool.record.staleness.items()))
    total = sum(counted.values())
    return {
        "mean": sum(late * times for late, times in counted.items()) / total if total else 0.0,
        "max": max(counted, default=0),
        "histogram": {str(late): times for late, times in counted.items()},
    }


def _busiest_links(pool: WorkerPool, end: float) -> Iterator[dict[str, Any]]:
    busy, carried = pool.cluster.busy(end), pool.cluster.carried()
    for name in sorted(busy, key=lambda name: (-busy[name], name))[:_BUSIEST]:
        yield {"link": name, "bytes": carried[name], "busy": busy[name]}


def _lost_seconds(pool: WorkerPool, healthy: WorkerPool | None, copies: int) -> float:
    """By how many seconds the last update is later than in an ideal run of the same work on the
    same devices. In the ideal run nothing is slow, and nothing is computed twice."""
    return 0.0 if healthy is None else pool.record.last - healthy.record.last / copies


def _roles(pool: WorkerPool) -> list[Role]:
    return [
        Role(
            index=worker.rank,
            name=f"worker {worker.rank}",
            stage=0,
            ranks=len(worker.endpoint.gpus),
            first_rank=worker.endpoint.first,
            slowdown=round(worker.mean_slowdown, 3),
        )
        for worker in pool.workers
    ]


def _unstruck(plan: Sharing, end: float) -> Iterator[str]:
    """Warn of each fault that would come after the end of the run."""
    for fault in plan.fault:
        if fault.at > end:
            who = f"rank {fault.rank}" if fault.server is None else f"server {fault.server}"
            yield (
                f"the fault of {who} at {human_seconds(fault.at)} never comes: the run is over "
                f"after {human_seconds(end)}"
            )


def _warnings(pool: WorkerPool) -> Iterator[str]:
    if pool.cluster.leaves_out_spans:
        yield f"only the first {pool.cluster.keep_spans:,} spans are kept for pictures and traces"
    stuck = [worker.rank for worker in pool.workers if not worker.lost]
    if stuck and pool.until is None and not pool.record.enough.triggered:
        yield f"workers {stuck} wait for a peer that never arrives"
    record = pool.record
    if pool.until is None and record.enough.triggered and record.samples > _NEWS * record.budget:
        steps, asked = record.samples / record.budget, "as many as were asked for"
        yield f"runs end with a whole round: {record.samples:g} samples, {steps:.3g} times {asked}"
    yield from _unfinished(pool)
    if lost := [worker.rank for worker in pool.workers if worker.lost]:
        yield f"workers {lost} failed and did not come back"


def _unfinished(pool: WorkerPool) -> Iterator[str]:
    """Warn of samples in rounds that the end of the run has cut off."""
    record = pool.record
    done = sum(worker.steps * worker.workload.batch for worker in pool.workers if not worker.lost)
    rest = done - record.samples
    if not (record.dropped or record.lost) and rest > (_NEWS - 1.0) * done:
        yield (
            f"{rest / done:.0%} of the computed samples belong to rounds that had not ended: these "
            "samples do not count, but their time does; let the run last longer"
        )
