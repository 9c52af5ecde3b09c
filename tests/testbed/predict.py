"""What the simulator says of the patterns: the testbed as a topology, with Gloo as its library.

The topology and the backend are ordinary files, the parameter servers those of `jobs.sharing`. What
is measured beforehand, in the same run, is Gloo's fixed cost of a message (half a ping-pong) and,
for real compute, seconds of the passes without any communication.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any, Literal, NoReturn

from sim.collectives.compression import Compression
from sim.collectives.libraries import backend
from sim.collectives.libraries.gloo import Gloo
from sim.engine.accounts import accounts
from sim.engine.live_cluster import Endpoint, LiveCluster
from sim.engine.machine import Machine
from sim.engine.play import play
from sim.engine.record import Record
from sim.hardware.cluster import topology
from sim.hardware.cluster.slow_links import slowed
from sim.hardware.cluster.storage import Storage
from sim.hardware.cluster.topology import Topology
from sim.jobs.multi_job.folding import Guest, meeting, together
from sim.jobs.multi_job.placed import Place
from sim.jobs.multi_job.repeated import repeat
from sim.jobs.sharing.methods.all_reduce import AllReduce
from sim.jobs.sharing.methods.gossip import Gossip, random_pairs
from sim.jobs.sharing.methods.local_sgd import LocalSGD
from sim.jobs.sharing.methods.parameter_server import ParameterServer
from sim.jobs.sharing.plan import Sharing
from sim.jobs.sharing.run import build
from sim.jobs.sharing.setup import assemble
from sim.jobs.sharing.tables import Fault, Recovery
from sim.jobs.sharing.worker_pool import WorkerPool
from sim.jobs.sharing.workload import Workload
from sim.parallel.loader import path
from sim.program.beside import beside
from sim.program.causes import COMPUTE, DATA, LOADING
from sim.program.operations import (
    Collective,
    Communicate,
    Compute,
    Copy,
    Kind,
    Operation,
    PassOps,
    Segment,
    Work,
)
from sim.program.program import Program, Stage
from sim.program.schedule import Action, PassVariant, Schedule


class Predictor:
    """The testbed of so many hosts; `slow` divides the rate of some hosts' links."""

    def __init__(self, hosts: int, message: float, slow: Mapping[int, float] | None = None) -> None:
        self.hosts, self.message, self.slow = hosts, message, slow or {}
        self.machine = self._machine(lambda host: host)

    def _machine(self, node_of: Callable[[int], int]) -> Machine:
        """The machine, with host h at node node_of(h)."""
        library, cluster = backend.load("gloo"), _cluster(self.hosts)
        assert isinstance(library, Gloo)
        for host, factor in self.slow.items():
            cluster = slowed(cluster, f"node{node_of(host)}.nic0", factor)
        return Machine(cluster, replace(library, message=self.message))

    # Synchronous: programs on the engine.

    def collective(self, kind: Kind, size: float, pauses: Sequence[float] = ()) -> float:
        """Seconds of a collective that every rank joins after its pause."""
        call = _call(kind, size, kind)
        if not pauses:
            return self._step([Communicate(name=kind, calls=(call,))])
        program = [_compute("pause", min(pauses)), Communicate(name=kind, calls=(call,))]
        return self._step(program, [pause / min(pauses) for pause in pauses])

    def ddp(
        self,
        forward: float,
        backward: Sequence[float],
        sizes: Sequence[float],
        buckets: int,
        slowdown: Sequence[float] = (),
    ) -> float:
        """A step of DDP: layers' backward seconds, last layer first, and their gradients' bytes.

        Equal buckets are reduced in order beside the backward pass (Li et al. 2020, section 3.2).
        """
        each = len(sizes) // buckets
        operations: list[Operation] = [_compute("forward", forward)]
        for bucket in range(buckets):
            layers = slice(bucket * each, (bucket + 1) * each)
            done = _compute(f"backward {bucket}", sum(backward[layers]))
            call = _call("all_reduce", sum(sizes[layers]), f"bucket {bucket}")
            reduce = Communicate(
                name=call.name, calls=(call,), after=(done.name,), stream="gradients"
            )
            operations += [done, reduce]
        return self._step(operations, slowdown)

    def _step(self, operations: Sequence[Operation], slowdown: Sequence[float] = ()) -> float:
        """Operations of one pass that every rank runs, on the clock as everything else here."""
        program = _program(operations, self.hosts)
        slow = {rank: factor for rank, factor in enumerate(slowdown) if factor != 1.0}
        return play(program, replace(self.machine, slowdown=slow), engine="clock").end

    def jobs(self, jobs: Sequence[Mapping[str, Any]]) -> list[list[float]]:
        """When each step of each job ended (s): jobs on hosts of their own in two halves, between
        which a trunk carries as much as a link."""
        half = self.hosts // 2
        pods = {"shape": "fat-tree", "nodes_per_pod": half, "oversubscription": half}
        changes = {f"network.{key}": value for key, value in pods.items()}
        cluster = topology.load(f"testbed-{self.hosts}", changes)
        everywhere = replace(self.machine, topology=cluster)
        guests = []
        for number, job in enumerate(jobs):
            place = Place(cluster, job["hosts"], (0,))
            on = place.machine(everywhere, place.topology())
            program = _program(_training(job), len(job["hosts"]))
            guests.append(Guest(str(number), place, on, program, work=_no_mean))
        ends: dict[int, list[float]] = {}
        for group in meeting(guests):
            steps = max(jobs[number]["steps"] for number in group)
            begins = [jobs[number]["offset"] for number in group]
            played = repeat(together([guests[number] for number in group]), begins, steps)
            for number, own in zip(group, played, strict=True):
                ends[number] = own.ends[: jobs[number]["steps"]]
        return [ends[number] for number in range(len(jobs))]

    def beside_storage(
        self, size: float, pause: float, steps: int, read: float = 0.0, write: float = 0.0,
        every: int = 1,
    ) -> float:  # fmt: skip
        """The mean step (s) of all hosts but the last, which is their storage. A checkpoint is
        written as evenly beside the next steps as it can be without making them wait."""
        payload = self.machine.topology.capacity(("nic-up", 0, 0))
        store = Storage(kind="parallel", read=payload, write=payload)
        machine = replace(
            self.machine,
            topology=replace(self.machine.topology.with_gpus(self.hosts - 1), storage=store),
        )
        plain = _program(_training({"pause": pause, "size": size}), self.hosts - 1)

        def step(way: Literal["up", "down"], moved: float) -> Record:
            links = tuple(link for link, _ in path(machine.topology, way, 1.0, "testbed"))
            call = Copy(kind="stream", bytes=moved, name="moved", cause=LOADING, path=links)
            moving = Communicate(name="moved", calls=(call,), stream="storage")
            return play(beside(plain, {0: (moving,)}), machine, engine="clock")

        if read:
            return step("down", read).step_time
        alone = play(plain, machine, engine="clock").step_time
        for count in range(1, every + 1):
            slowed = step("up", write / count)
            if LOADING not in accounts(slowed)[0]:
                break
        return (count * slowed.step_time + (every - count) * alone) / every

    # One by one: the processes of `sim.jobs.sharing`.

    def send(self, size: float) -> float:
        """One message."""
        cluster = LiveCluster(self.machine, overhead=self.message)
        cluster.send(size, Endpoint((0,)), {Endpoint((1,)): 1.0})
        cluster.run()
        return cluster.now

    def parameter_server(self, size: float, pauses: Sequence[float] = ()) -> float:
        """All push to rank 0; when it has everything, all pull."""
        steps = [[pause] for pause in pauses[1:] or [0.0] * (self.hosts - 1)]
        return self._served(size, steps, mode="bsp").cluster.now

    def asynchronous(
        self, size: float, pauses: Sequence[Sequence[float]], bound: int | None
    ) -> tuple[float, float]:
        """Updates/s and mean staleness of a server that does not wait for everyone."""
        if bound is None:
            pool = self._served(size, pauses, mode="async")
        else:
            pool = self._served(size, pauses, mode="ssp", bound=bound)
        record = pool.record
        late = sum(staleness * count for staleness, count in record.staleness.items())
        return record.updates / pool.cluster.now, late / record.updates

    def int8_rounds(self, size: float) -> float:
        """One average of `size` bytes of fp32 gradients as int8."""
        plan = AllReduce(workers=self.hosts, steps=1, compression=Compression(kind="int8"))
        return _played(plan, self.machine, size, [[0.0]] * self.hosts).cluster.now

    def hierarchical(self, size: float, pauses: Sequence[float], period: int, rounds: int) -> float:
        """Local SGD of workers of two hosts each; a worker is as slow as its slower host."""
        steps = period * rounds
        plan = LocalSGD(workers=self.hosts // 2, worker=2, period=period, steps=steps)
        both = [max(pauses[rank : rank + 2]) for rank in range(0, self.hosts, 2)]
        return _played(plan, self.machine, size, [[one] * steps for one in both]).cluster.now

    def away(
        self, size: float, pauses: Sequence[float], steps: int, fails: tuple[int, float, float]
    ) -> float:
        """Until an asynchronous server that is away for a while, or whose worker is, has had so
        many updates of each worker."""
        rank, at, after = fails
        fault = Fault(rank=rank - 1, at=at, after=after)
        if rank == 0:
            fault = Fault(server=0, at=at, after=after)
        recovery = Recovery(detection=0.0, restart=0.0)
        each = [[pause] * steps for pause in pauses[1:]]
        pool = self._served(size, each, mode="async", fault=(fault,), recovery=recovery)
        return pool.cluster.now

    def gossip(self, size: float, rounds: int, pauses: Sequence[float] = ()) -> float:
        """Rounds with a partner each, those of `partners`.

        Gloo's messages leave when they are awaited, so an exchange begins when both are there.
        """
        plan = Gossip(
            algorithm="random_pairs",
            workers=self.hosts,
            steps=rounds,
            overhead=self.message,
            rendezvous=True,
        )
        steps = [[pause] * rounds for pause in pauses or [0.0] * self.hosts]
        return _played(plan, self.machine, size, steps).cluster.now

    def _served(self, size: float, pauses: Sequence[Sequence[float]], **mode: Any) -> WorkerPool:
        """The server comes last on a machine of `jobs.sharing`, so rank r is node r - 1 there."""
        plan = ParameterServer(
            workers=self.hosts - 1,
            steps=len(pauses[0]),
            overhead=self.message,
            fluid=False,
            server_passes=0.0,
            **mode,
        )
        machine = self._machine(lambda host: (host - 1) % self.hosts)
        return _played(plan, machine, size, pauses)


def _program(operations: Sequence[Operation], ranks: int) -> Program:
    ops = {PassVariant("F", 0, first=True): PassOps(tuple(operations))}
    return Program(
        mesh={"dp": ranks, "pp": 1},
        schedule=Schedule(orders=((Action("F", 0),),), pieces=((0,),)),
        stages=(Stage(ops_by_variant=ops),),
    )


def _training(job: Mapping[str, Any]) -> list[Operation]:
    """A step of a job that computes, then sums up its gradients."""
    reduce = Communicate(name="reduce", calls=(_call("all_reduce", job["size"], "reduce"),))
    return [_compute("compute", job["pause"]), reduce]


def partners(hosts: int, rounds: int) -> list[dict[int, int]]:
    """The random partners of so many rounds, as simulated workers draw them, for all to use."""
    plan = Gossip(algorithm="random_pairs")
    pool = build(assemble(plan, Machine(_cluster(hosts), backend.load("gloo")), _work(4.0)))
    return [random_pairs(pool, number) for number in range(rounds)]


def _played(
    plan: Sharing, machine: Machine, size: float, pauses: Sequence[Sequence[float]]
) -> WorkerPool:
    """Workers share updates of `size` bytes; worker r computes pauses[r][t] seconds in step t.

    After its last step it does nothing more.
    """
    pool = build(assemble(plan, machine, _work(size)))
    for worker in pool.workers:
        worker.slowdown = partial(_seconds, pauses[worker.rank])
    plan.start(pool)
    pool.run()
    return pool


def _seconds(pauses: Sequence[float], step: int) -> float:
    return pauses[step] if step < len(pauses) else inf


def _work(size: float) -> Workload:
    """A second of compute, so that a slowdown is in seconds, and fp32 gradients."""
    return Workload.plain(1.0, size / 4.0)


def _cluster(hosts: int) -> Topology:
    return topology.load(f"testbed-{hosts}")


def _call(kind: Kind, size: float, name: str) -> Collective:
    return Collective(kind=kind, axes=("dp",), bytes=size, name=name, cause=DATA)


def _compute(name: str, seconds: float) -> Compute:
    segment = Segment(name=name, cause=COMPUTE, device=seconds, lead=seconds)
    return Compute(name=name, work=Work(name=name, items=(segment,)))


def _no_mean(machine: Machine) -> NoReturn:
    """Jobs that repeat programs are played: nobody asks for their work on average."""
    raise AssertionError("the mean work of a job that repeats its program")
