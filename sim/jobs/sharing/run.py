"""Run shared updates on a cluster: from a setup to the workers at the end of their training."""

from functools import partial

from sim.config.counting import polled
from sim.engine.live_cluster import LiveCluster
from sim.jobs.sharing.learning.optimizers import Optimizer
from sim.jobs.sharing.merging import SharedWeights
from sim.jobs.sharing.plan import ServerBased, Sharing
from sim.jobs.sharing.server import Server, Shards
from sim.jobs.sharing.server_placement import guest_regions
from sim.jobs.sharing.setup import SharingSetup
from sim.jobs.sharing.slowdowns import WorkerSlowdowns, vary_links
from sim.jobs.sharing.update_record import UpdateRecord
from sim.jobs.sharing.worker import Worker
from sim.jobs.sharing.worker_pool import WorkerPool

_LONG = 1 << 20  # the most steps whose slowdowns are drawn if there is a time limit


def run(setup: SharingSetup, *, samples: float | None = None) -> WorkerPool:
    """Train as long as the plan says, or for `samples` samples; return the trained pool."""
    pool = build(setup, samples=samples)
    setup.plan.start(pool)
    until, record = pool.until, pool.record
    if until is None:
        progress = polled(lambda: record.samples, total=record.budget, unit="sample")
    else:
        progress = polled(lambda: pool.cluster.now, total=until, unit="simulated second")
    with progress:
        pool.run()
    return pool


def build(setup: SharingSetup, *, samples: float | None = None) -> WorkerPool:
    """Build the pool before its training."""
    plan, learning, cluster = setup.plan, setup.plan.learning, _cluster(setup)
    optimizer = plan.rule(len(setup.workers), setup.task)
    of_steps = plan.steps * sum(workload.batch for workload in setup.workloads)
    record = UpdateRecord(cluster, setup.task, budget=samples or of_steps)
    pool = WorkerPool(
        cluster=cluster,
        workers=_workers(setup, cluster, optimizer),
        task=setup.task,
        record=record,
        until=None if samples else plan.until,
        seed=plan.seed,
        round_steps=plan.round_steps,
        recovery=plan.recovery,
    )
    start, decay = setup.task.start, learning.decay if learning else 0.0
    merging = plan.merging(optimizer, start.size)
    if merging is not None:
        pool.shared = SharedWeights(start, merging, record, decay=decay)
    if merging is not None and isinstance(plan, ServerBased):
        shards = Shards(shares=setup.servers, rate=plan.server_rate)
        only_sums = plan.servers == "spare"
        pool.shared = pool.servers = Server(
            cluster, shards, start, merging, record, plan.recovery, decay=decay, only_sums=only_sums
        )
    for worker in pool.workers:
        worker.restore = pool.restore
    _fail(plan, pool)
    _change_links(setup, cluster)
    return pool


def _fail(plan: Sharing, pool: WorkerPool) -> None:
    """Schedule the failures of servers, and of workers that never come back."""
    for fault in plan.fault:
        if fault.server is not None:
            fail = partial(pool.server.fail, fault.server, fault.after)
            pool.cluster.call_at(fault.at, fail)
        elif fault.rank is not None and fault.after is None:
            pool.cluster.call_at(fault.at, partial(pool.lose, pool.workers[fault.rank]))


def _cluster(setup: SharingSetup) -> LiveCluster:
    plan, each = setup.plan, setup.machine.topology.gpus_per_node
    cluster = LiveCluster(
        setup.machine,
        plan.overhead,
        plan.regions,
        guest_regions(plan, setup.workers, setup.servers, each),
        keep_spans=setup.keep_spans,
        each_message=not plan.merges_messages,
    )
    if isinstance(plan, ServerBased) and plan.server_bandwidth is not None:
        for host in setup.servers:
            if host not in setup.workers:
                cluster.set_bandwidth(host, plan.server_bandwidth)
    return cluster


def _workers(setup: SharingSetup, cluster: LiveCluster, optimizer: Optimizer) -> list[Worker]:
    plan, slowdowns = setup.plan, _slowdowns(setup)
    return [
        Worker(
            rank,
            endpoint,
            cluster=cluster,
            workload=setup.workloads[rank],
            task=setup.task,
            slowdown=partial(slowdowns.factor, rank),
            mean_slowdown=slowdowns.mean[rank],
            absences=[
                (fault.at, fault.after)
                for fault in plan.fault
                if fault.rank == rank and fault.after is not None
            ],
            compression=plan.compression,
            memory_bandwidth=cluster.topology.device.memory_bandwidth,
            optimizer=optimizer,
            seed=plan.seed,
        )
        for rank, endpoint in enumerate(setup.workers)
    ]


def _slowdowns(setup: SharingSetup) -> WorkerSlowdowns:
    plan, factors = setup.plan, dict(setup.machine.slowdown)
    for group in plan.group:
        for rank in group.ranks:
            for gpu in setup.workers[rank].gpus:
                factors[gpu] = factors.get(gpu, 1.0) * group.slowdown
    return WorkerSlowdowns(
        plan.straggler,
        factors,
        setup.workers,
        setup.machine.topology,
        steps=2 * plan.steps if plan.until is None else _LONG,
        redundancy=plan.copies,
        seed=plan.seed,
    )


def _change_links(setup: SharingSetup, cluster: LiveCluster) -> None:
    """Schedule changes of links' capacities, at known moments or by a law."""
    for change in setup.plan.change:
        for link in cluster.routes.links_named(change.link):
            cluster.call_at(change.at, partial(cluster.slow_link, link, change.factor, "change"))
    if any(cause.links for cause in setup.plan.straggler):
        cluster.start(vary_links(setup.plan.straggler, cluster, seed=setup.plan.seed))
