"""What the engine offers to asynchronous jobs: places that compute, send, receive and wait.

A synchronous step is a program that is known beforehand; here a job is SimPy processes that decide
as they go (`sim.sharing`). They live on the same devices, topology and links: a message is a flow
through `sim.engine.crowd`, and everything that happens is a span of a timeline.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, log2
from typing import Any

import simpy
from simpy.events import AllOf, Event

from sim.collectives.shape import Shape
from sim.engine.communicators import group_loads
from sim.engine.crowd import Crowd
from sim.engine.machine import Machine
from sim.engine.network import Loads, then
from sim.engine.trace import Role, Span, Timeline
from sim.hardware.link import Link, link_name
from sim.hardware.topology import Topology

__all__ = ["Event", "Place", "Process", "Regions", "World"]

Process = Generator[Event, Any, Any]
Shares = tuple[tuple[Link, float], ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a worker or a server is: GPUs (or slots) of one node, and how many of its NICs it uses.

    A place of several GPUs spreads what it sends over their NICs.
    """

    gpus: tuple[int, ...]

    @property
    def first(self) -> int:
        return self.gpus[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Regions:
    """Places far apart: `nodes` of a topology to a region, each with one link to the others."""

    nodes: int
    bandwidth: float
    latency: float


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
    _links: dict[Link, int] = field(default_factory=dict)
    _ways: dict[tuple[Place, Place], tuple[Shares, float]] = field(default_factory=dict)
    _fans: dict[tuple[Any, ...], tuple[Loads, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.network = Crowd(self.env)

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
            ways = [self._way(source, target) for source, target in pairs]
            shares = zip((way for way, _ in ways), many.values(), strict=True)
            self._fans[key] = (
                self._numbered(_summed(shares)),
                max((far for _, far in ways), default=0.0),
            )
        loads, latency = self._fans[key]
        return self._launch(size, loads, latency)

    def swap(self, size: float, one: Place, other: Place) -> Event:
        """Both send `size` bytes to each other at once, and acknowledge what they receive."""
        there, far = self._way(one, other)
        back, _ = self._way(other, one)
        each = 1.0 + self.machine.returned
        return self._transfer(size, _summed([(there, each), (back, each)]), far)

    def collective(self, kind: str, size: float, places: Sequence[Place]) -> Event:
        """A collective of all GPUs of some places, as the machine's library carries it out.

        Across regions a ring passes every region's link once each way, and its 2(R-1) dependent
        hops pay their latency.
        """
        gpus = [gpu for place in places for gpu in place.gpus]
        if len(gpus) == 1:
            return self.sleep(0.0)
        shape = _shape(gpus, self.topology)
        wire = self.machine.wire(kind, size, shape)
        loads: dict[Link, float] = {}
        for link, (port, nic) in group_loads(gpus, self.topology, shape).items():
            if load := port * wire.port + nic * wire.nic:
                loads[link] = load
        latency = wire.latency
        if self.regions and (crossed := sorted({self._region(place) for place in places}))[1:]:
            loads |= {(way, r): wire.nic for r in crossed for way in ("region-up", "region-down")}
            hops = 2 * (len(crossed) - 1) if kind == "all_reduce" else ceil(log2(len(crossed)))
            latency += hops * self.regions.latency
        return self._transfer(1.0, tuple(loads.items()), latency)

    def set_bandwidth(self, place: Place, bandwidth: float) -> None:
        """A host's NICs together carry so much each way, whatever the topology's NICs do."""
        topology = self.topology
        nics = {topology.nic_of(gpu) for gpu in place.gpus}
        for node, nic in nics:
            for way in ("nic-up", "nic-down"):
                self.network.change(self._number((way, node, nic)), bandwidth / len(nics))

    def change_link(self, link: Link, factor: float) -> None:
        """From now on a link has its capacity divided by `factor`."""
        self.network.change(self._number(link), self._capacity(link) / factor)

    def call(self, later: float, act: Callable[[], None]) -> None:
        """Do something at a moment to come."""
        then(self.env.timeout(max(later - self.now, 0.0)), lambda _: act())

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
        return {_name(link): carried[number] for link, number in self._links.items()}

    def busy(self, end: float) -> dict[str, float]:
        """The share of the time in which each link would carry its bytes at full rate."""
        carried, rates = self.network.carried, self.network.capacities
        return {_name(at): carried[n] / rates[n] / end for at, n in self._links.items()}

    # Ways and links.

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

    def _way(self, source: Place, target: Place) -> tuple[Shares, float]:
        """Links with the share of the bytes that each carries, and the latency on the way."""
        key = (source, target)
        if key not in self._ways:
            self._ways[key] = self._found_way(source, target)
        return self._ways[key]

    def _found_way(self, source: Place, target: Place) -> tuple[Shares, float]:
        topology = self.topology
        a, b = source.first, target.first
        if a == b:
            return (), 0.0
        route = topology.route(a, b)
        far = self.overhead + sum(topology.latency(link) for link in route)
        loads: dict[Link, float] = dict.fromkeys(route, 1.0)
        if topology.node_of(a) != topology.node_of(b) and topology.hierarchical:
            loads = {link: 1.0 for link in route if str(link[0]).startswith("pod")}
            _spread(loads, "nic-up", source, topology)
            _spread(loads, "nic-down", target, topology)
        if self.regions and (here := self._region(source)) != (there := self._region(target)):
            loads |= {("region-up", here): 1.0, ("region-down", there): 1.0}
            far += self.regions.latency
        return tuple(loads.items()), far

    def _region(self, place: Place) -> int:
        assert self.regions is not None
        return self.topology.node_of(place.first) // self.regions.nodes

    def _number(self, link: Link) -> int:
        number = self._links.get(link)
        if number is None:
            number = self._links[link] = self.network.add_link(self._capacity(link))
        return number

    def _capacity(self, link: Link) -> float:
        if str(link[0]).startswith("region"):
            assert self.regions is not None
            return self.regions.bandwidth
        return self.topology.capacity(link)


def _fire(done: Event) -> None:
    done.succeed()


def _summed(ways: Iterable[tuple[Shares, float]]) -> Shares:
    """Loads of several ways as those of one transfer."""
    loads: dict[Link, float] = {}
    for way, share in ways:
        for link, load in way:
            loads[link] = loads.get(link, 0.0) + load * share
    return tuple(loads.items())


def _spread(loads: dict[Link, float], way: str, place: Place, topology: Topology) -> None:
    """What leaves (or enters) a node is divided evenly over the NICs of the place's GPUs."""
    for gpu in place.gpus:
        node, nic = topology.nic_of(gpu)
        loads[way, node, nic] = loads.get((way, node, nic), 0.0) + 1.0 / len(place.gpus)


def _shape(gpus: Sequence[int], topology: Topology) -> Shape:
    per_node: dict[int, int] = {}
    for gpu in gpus:
        node = topology.node_of(gpu)
        per_node[node] = per_node.get(node, 0) + 1
    return Shape(ranks=len(gpus), nodes=len(per_node), per_node=max(per_node.values()))


def _name(link: Link) -> str:
    kind, place = str(link[0]), link[1]
    return f"region{place}.{kind[7:]}" if kind.startswith("region") else link_name(link)
