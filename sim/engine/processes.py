"""What the engine offers to asynchronous jobs: places that compute, send, receive and wait.

A synchronous step is a program that is known beforehand; here a job is SimPy processes that decide
as they go (`sim.sharing`). They live on the same devices, topology and links: a message is a flow
through `sim.engine.flow_classes`, and everything that happens is a span of a timeline.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, prod
from typing import Any

import simpy
from simpy.events import AllOf, Event

from sim.engine.flow_classes import Crowd
from sim.engine.machine import Machine
from sim.engine.network import Loads, then
from sim.engine.routes import Place, Regions, Shares, Ways, name_of
from sim.engine.timeline import Role, Span, Timeline
from sim.hardware.cluster.link import Link
from sim.hardware.cluster.topology import Topology

__all__ = ["Event", "Place", "Process", "Regions", "World"]

Process = Generator[Event, Any, Any]


@dataclass(slots=True)
class World:
    """A clock, a machine and its links, and the record of what happened.

    `overhead` is the software's cost of a message (s). `keep` is the number of spans that are
    kept; the account of seconds and bytes goes on behind it.
    """

    machine: Machine
    overhead: float = 0.0
    regions: Regions | None = None
    keep: int = 200_000
    each_message: bool = False
    env: simpy.Environment = field(default_factory=simpy.Environment)
    spans: list[Span] = field(default_factory=list)
    network: Crowd = field(init=False)
    ways: Ways = field(init=False)
    _links: dict[Link, int] = field(default_factory=dict)
    _full: dict[int, float] = field(default_factory=dict)
    _slowed: dict[Link, dict[Any, float]] = field(default_factory=dict)
    _fans: dict[tuple[Any, ...], tuple[Loads, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.network = Crowd(self.env)
        self.ways = Ways(self.machine, self.overhead, self.regions)

    @property
    def topology(self) -> Topology:
        return self.machine.topology

    @property
    def now(self) -> float:
        return float(self.env.now)

    # What processes do.

    def start(self, process: Process) -> Event:
        """Let a process run; the event fires with what it returns."""
        return self.env.process(process)

    def sleep(self, seconds: float) -> Event:
        return self.env.timeout(seconds)

    def event(self) -> Event:
        """Something to wait for, which another process lets happen by `succeed(value)`."""
        return Event(self.env)

    def all_of(self, events: Iterable[Event]) -> Event:
        return AllOf(self.env, events)

    def send(self, size: float, source: Place, targets: Mapping[Place, float]) -> Event:
        """Put `size` bytes on the way, of which each target gets its share (1 is all of it).

        One weighted transfer: all shares progress together and arrive together, or, where
        `each_message` is set, a flow for each that arrives by itself. The event is the last.
        """
        return self._spread_out(size, source, targets, outwards=True)

    def gather(self, size: float, sources: Mapping[Place, float], target: Place) -> Event:
        """The same the other way round: every source sends its share of `size` bytes."""
        return self._spread_out(size, target, sources, outwards=False)

    def _spread_out(
        self, size: float, one: Place, many: Mapping[Place, float], *, outwards: bool
    ) -> Event:
        if self.each_message and len(many) > 1:
            parts = ({place: share} for place, share in many.items())
            return self.all_of([self._spread_out(size, one, p, outwards=outwards) for p in parts])
        key = (outwards, one, tuple(many), tuple(many.values()))
        if key not in self._fans:
            pairs = [((one, other) if outwards else (other, one)) for other in many]
            loads, latency = self.ways.fan(pairs, many.values())
            self._fans[key] = self._numbered(loads), latency
        return self._launch(size, *self._fans[key])

    def swap(self, size: float, one: Place, other: Place) -> Event:
        """Both send `size` bytes to each other at once, and acknowledge what they receive."""
        ways = self.ways.fan([(one, other), (other, one)], (1.0, 1.0))
        return self._transfer(self.crossing(size), *ways)

    def crossing(self, size: float) -> float:
        """Bytes of a message with the acknowledgements of one that comes the other way."""
        return size * (1.0 + self.machine.returned)

    def collective(self, kind: str, size: float, places: Sequence[Place]) -> Event:
        """A collective of all GPUs of some places, as the machine's library carries it out."""
        if sum(len(place.gpus) for place in places) == 1:
            return self.sleep(0.0)
        return self._transfer(1.0, *self.ways.collective(kind, size, places))

    def set_bandwidth(self, place: Place, bandwidth: float) -> None:
        """A host's NICs together carry so much each way, whatever the topology's NICs do."""
        topology = self.topology
        nics = {topology.nic_of(gpu) for gpu in place.gpus}
        for node, nic in nics:
            for way in ("nic-up", "nic-down"):
                self._full[self._number((way, node, nic))] = bandwidth / len(nics)
                self._change((way, node, nic))

    def slow_link(self, link: Link, factor: float, cause: Any) -> None:
        """From now on a cause divides a link's capacity by `factor`; causes multiply."""
        self._slowed.setdefault(link, {})[cause] = factor
        self._change(link)

    def _change(self, link: Link) -> None:
        number, factors = self._number(link), self._slowed.get(link, {}).values()
        self.network.change(number, self._full[number] / prod(factors))

    def call(self, later: float, act: Callable[[], None]) -> None:
        """Do something at a moment to come."""
        then(self.env.timeout(max(later - self.now, 0.0)), lambda _: act())

    @property
    def is_still(self) -> bool:
        """Whether nothing is left to happen."""
        return self.env.peek() == inf

    def run(self, until: Event | None = None) -> None:
        """Let time pass until nothing is left to happen, or until an event."""
        self.env.run(until)

    # What is recorded.

    def span(
        self,
        role: int,
        stream: str,
        name: str,
        cause: str,
        start: float,
        end: float | None = None,
        **args: Any,
    ) -> None:
        """Something that began at `start` has ended, now unless said otherwise."""
        if len(self.spans) < self.keep:
            end = self.now if end is None else end
            self.spans.append(Span(role, stream, name, cause, start, end, args))

    def timeline(self, roles: Sequence[Role], end: float) -> Timeline:
        return Timeline(roles=tuple(roles), spans=self.spans, end=end, events=next(self.env._eid))

    @property
    def full(self) -> bool:
        """Whether spans have been left out."""
        return len(self.spans) >= self.keep > 0

    @property
    def events(self) -> int:
        """Events so far; simpy counts them but has no public name for the count."""
        return next(self.env._eid)

    def carried(self) -> dict[str, float]:
        """Bytes that every link has carried, by its name."""
        carried = self.network.carried
        return {name_of(link): carried[number] for link, number in self._links.items()}

    def busy(self, end: float) -> dict[str, float]:
        """The share of the time in which each link would carry its bytes at full rate."""
        carried = self.network.carried
        return {name_of(at): carried[n] / self._full[n] / end for at, n in self._links.items()}

    # Links.

    def _transfer(self, size: float, loads: Shares, latency: float) -> Event:
        return self._launch(size, self._numbered(loads), latency)

    def _numbered(self, loads: Shares) -> Loads:
        return tuple((self._number(link), load) for link, load in loads)

    def _launch(self, size: float, numbered: Loads, latency: float) -> Event:
        done = Event(self.env)
        if size <= 0.0 or not numbered:
            then(self.env.timeout(latency), lambda _: _fire(done))
        elif latency > 0.0:
            go = self.env.timeout(latency)
            then(go, lambda _: self.network.start(size, numbered, _fire, done))
        else:
            self.network.start(size, numbered, _fire, done)
        return done

    def _number(self, link: Link) -> int:
        number = self._links.get(link)
        if number is None:
            capacity = self.ways.capacity(link)
            number = self._links[link] = self.network.add_link(capacity)
            self._full[number] = capacity
        return number


def _fire(done: Event) -> None:
    done.succeed()
