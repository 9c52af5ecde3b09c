"""What the simulator says of the patterns: the testbed as a topology, with Gloo as its library.

The topology and the backend are ordinary files. What is measured beforehand, in the same run, is
Gloo's fixed cost of a message (half a ping-pong) and, for real compute, seconds of the passes
without any communication.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sim.collectives import backend
from sim.collectives.gloo import Gloo
from sim.engine.clock import play
from sim.engine.fold import fold
from sim.engine.machine import Machine
from sim.engine.processes import Event, Place, Process, World
from sim.hardware import topology
from sim.program import Collective, Communicate, Compute, Kind, Operation, Program, Segment, Work


class Predictor:
    """The testbed of so many hosts; `slow` divides the rate of some hosts' links."""

    def __init__(self, hosts: int, message: float, slow: Mapping[int, float] | None = None) -> None:
        library = backend.load("gloo")
        assert isinstance(library, Gloo)
        cluster = topology.load(f"testbed-{hosts}")
        for host, factor in (slow or {}).items():
            cluster = cluster.slowed(f"node{host}.nic0", factor)
        self.hosts, self.message = hosts, message
        self.machine = Machine(cluster, replace(library, message=message))
        self.places = [Place((host,)) for host in range(hosts)]

    def _world(self) -> World:
        return World(self.machine, overhead=self.message, each_message=True)

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
        program = Program(mesh={"dp": self.hosts}, stages=(tuple(operations),))
        slow = {rank: factor for rank, factor in enumerate(slowdown) if factor != 1.0}
        return play(fold(program, replace(self.machine, slowdown=slow))).end

    # Between pairs: processes on the engine.

    def send(self, size: float) -> float:
        """One message."""
        world = self._world()
        world.send(size, self.places[0], {self.places[1]: 1.0})
        world.run()
        return world.now

    def parameter_server(self, size: float, pauses: Sequence[float] = ()) -> float:
        """All push to rank 0; when it has everything, all pull."""
        world, (server, *workers) = self._world(), self.places

        def push(place: Place, pause: float) -> Process:
            yield world.sleep(pause)
            yield world.send(size, place, {server: 1.0})

        def round_() -> Process:
            pauses_of = pauses[1:] or [0.0] * len(workers)
            pushes = zip(workers, pauses_of, strict=True)
            yield world.all_of([world.start(push(*one)) for one in pushes])
            yield world.send(size, server, dict.fromkeys(workers, 1.0))

        world.start(round_())
        world.run()
        return world.now

    def gossip(
        self, size: float, rounds: Sequence[Sequence[int]], pauses: Sequence[float] = ()
    ) -> float:
        """Rounds with a partner each: who has computed waits for the partner, then they swap."""
        world = self._world()
        waiting: dict[tuple[int, int], Event] = {}

        def meet(turn: int, me: int, partner: int) -> Event:
            """The end of the exchange; the second to come starts it."""
            pair = (turn, min(me, partner))
            if pair not in waiting:
                waiting[pair] = world.event()
                return waiting[pair]
            end = world.swap(size, self.places[me], self.places[partner])
            assert end.callbacks is not None
            end.callbacks.append(lambda _: waiting[pair].succeed())
            return end

        def rank(me: int) -> Process:
            for turn, partners in enumerate(rounds):
                yield world.sleep(pauses[me] if pauses else 0.0)
                yield meet(turn, me, partners[me])

        for me in range(self.hosts):
            world.start(rank(me))
        world.run()
        return world.now

    def asynchronous(
        self, size: float, pauses: Sequence[Sequence[float]], bound: int | None
    ) -> tuple[float, float]:
        """Updates/s and mean staleness of an asynchronous server with one process a worker."""
        world, (server, *workers) = self._world(), self.places
        clocks = [0] * len(workers)
        staleness: list[int] = []
        changed = [world.event()]

        def ahead(worker: int) -> int:
            return clocks[worker] - min(clocks)

        def worker(me: int) -> Process:
            seen = 0
            for pause in pauses[me]:
                yield world.sleep(pause)
                yield world.send(size, workers[me], {server: 1.0})
                staleness.append(len(staleness) - seen)
                clocks[me] += 1
                changed[0].succeed()
                changed[0] = world.event()
                while bound is not None and ahead(me) > bound:
                    yield changed[0]
                seen = len(staleness)
                yield world.send(size, server, {workers[me]: 1.0})

        for me in range(len(workers)):
            world.start(worker(me))
        world.run()
        return len(staleness) / world.now, sum(staleness) / len(staleness)


def _call(kind: Kind, size: float, name: str) -> Collective:
    return Collective(kind=kind, axes=("dp",), bytes=size, name=name, cause="data communication")


def _compute(name: str, seconds: float) -> Compute:
    segment = Segment(name=name, cause="compute", device=seconds, lead=seconds)
    return Compute(name=name, work=Work(name=name, items=(segment,)))
