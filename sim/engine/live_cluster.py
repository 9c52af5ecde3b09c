"""A cluster on which processes compute, send, receive and wait, for jobs that decide as they run.

A synchronous step is a program that is known beforehand; asynchronous training consists of SimPy
processes (`sim.jobs.sharing`). Both run on the same devices, topology and links. Here a message is
a flow through `sim.engine.flow_classes`, and an activity is a span of a timeline.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from math import inf, prod
from typing import Any

import simpy
from simpy.events import AllOf, Event

from sim.engine.events import at_the_end_of_the_instant, then
from sim.engine.fair_shares import Loads
from sim.engine.flow_classes import FlowClassNetwork
from sim.engine.machine import Machine
from sim.engine.routes import Endpoint, LinkLoads, Regions, Routes, name_of
from sim.engine.timeline import Role, Span, Timeline
from sim.hardware.cluster.network import Link
from sim.hardware.cluster.topology import Topology
from sim.program.causes import Cause

__all__ = ["Endpoint", "Event", "LiveCluster", "Process", "Regions"]

Process = Generator[Event, Any, Any]


@dataclass(slots=True)
class LiveCluster:
    """A machine on a clock, with its links and the spans of all activities.

    `overhead` is the software's cost of a message (s). A node's number gives its region, except
    for nodes in `guests`, which gives their regions. With `each_message`, messages that are sent
    together are separate flows. Only the first `keep_spans` spans are kept, but all bytes
    are counted.
    """

    machine: Machine
    overhead: float = 0.0
    regions: Regions | None = None
    guests: Mapping[int, int] = field(default_factory=dict)
    keep_spans: int = 200_000
    each_message: bool = False
    env: simpy.Environment = field(default_factory=simpy.Environment)
    spans: list[Span] = field(default_factory=list)
    network: FlowClassNetwork = field(init=False)
    routes: Routes = field(init=False)
    _links: dict[Link, int] = field(default_factory=dict)  # numbers of links in the network
    _capacity: dict[int, float] = field(default_factory=dict)  # B/s when nothing slows a link
    _slowed: dict[Link, dict[Any, float]] = field(default_factory=dict)
    _of_protocol: Counter[Link] = field(default_factory=Counter)  # bytes that protocols add
    _numbered_routes: dict[tuple[Any, ...], tuple[Loads, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.network = FlowClassNetwork(self.env)
        self.routes = Routes(self.machine, self.overhead, self.regions, self.guests)

    @property
    def topology(self) -> Topology:
        return self.machine.topology

    @property
    def now(self) -> float:
        return float(self.env.now)

    # Operations of processes.

    def start(self, process: Process) -> Event:
        """Let a process run; the event fires with the value that the process returns."""
        return self.env.process(process)

    def sleep(self, seconds: float) -> Event:
        return self.env.timeout(seconds)

    def event(self) -> Event:
        """An event for which processes wait; another process triggers it by `succeed(value)`."""
        return Event(self.env)

    def all_of(self, events: Iterable[Event]) -> Event:
        return AllOf(self.env, events)

    def send(self, size: float, source: Endpoint, targets: Mapping[Endpoint, float]) -> Event:
        """Send `size` bytes; each target gets its share of them (1.0 is all bytes).

        All shares are one weighted transfer and arrive together. With `each_message`, each target
        has a flow of its own. The event fires when all shares have arrived.
        """
        return self._scatter(size, source, targets, outwards=True)

    def gather(self, size: float, sources: Mapping[Endpoint, float], target: Endpoint) -> Event:
        """Gather bytes at a target: every source sends its share of `size` bytes, as in `send`."""
        return self._scatter(size, target, sources, outwards=False)

    def _scatter(
        self, size: float, root: Endpoint, shares: Mapping[Endpoint, float], *, outwards: bool
    ) -> Event:
        if self.each_message and len(shares) > 1:
            parts = [{endpoint: share} for endpoint, share in shares.items()]
            return self.all_of([self._scatter(size, root, p, outwards=outwards) for p in parts])
        key = (outwards, root, tuple(shares), tuple(shares.values()))
        route = self._numbered_routes.get(key)  # one look-up, as hashing a long key takes time
        if route is None:
            pairs = [((root, leaf) if outwards else (leaf, root)) for leaf in shares]
            loads, latency = self.routes.together(pairs, shares.values())
            route = self._numbered_routes[key] = self._numbered(loads), latency
        return self._launch(size, *route)

    def swap(self, size: float, left: Endpoint, right: Endpoint) -> Event:
        """Let two endpoints send `size` bytes to each other at once, with acknowledgements."""
        route = self.routes.together([(left, right), (right, left)], (1.0, 1.0))
        return self._transfer(self.crossing(size), *route)

    def crossing(self, size: float) -> float:
        """The bytes of a message and of acknowledgements for an equal message in return."""
        return size * (1.0 + self.machine.returned)

    def collective(
        self, kind: str, size: float, endpoints: Sequence[Endpoint], *, in_pieces: bool = False
    ) -> Event:
        """A collective of all GPUs of some endpoints, as the machine's library carries it out. With
        `in_pieces`, each GPU of an endpoint holds a piece of its own and has one peer in every
        other endpoint."""
        if sum(len(endpoint.gpus) for endpoint in endpoints) == 1:
            return self.sleep(0.0)
        route, protocol = self.routes.collective(kind, size, endpoints, in_pieces=in_pieces)
        done = self._transfer(1.0, *route)
        then(done, lambda _: self._of_protocol.update(dict(protocol)))
        return done

    def host_copy(self, size: float, endpoint: Endpoint, way: str, *, passes: float = 1.0) -> Event:
        """Copy bytes "down" from the host's memory to an endpoint, or "up" from the endpoint. Each
        byte is read or written `passes` times in memory. The bytes of a CPU do not cross PCIe."""
        topology, loads = self.topology, dict[Link, float]()
        share = 1.0 / len(endpoint.gpus)
        for gpu in endpoint.gpus:
            node, number = topology.host_link_of(gpu)
            loads["memory", node] = loads.get(("memory", node), 0.0) + passes * share
            if topology.device.generation != "cpu":
                link = (f"pcie-{way}", node, number)
                loads[link] = loads.get(link, 0.0) + share
                if topology.node is not None and topology.node.network_through_ports:
                    loads[f"port-{way}", gpu] = share  # the only way from GPU to host
        return self._transfer(size, tuple(loads.items()), 0.0)

    def set_bandwidth(self, host: Endpoint, bandwidth: float) -> None:
        """Set the total `bandwidth` (B/s in each direction) of all NICs of a host."""
        topology = self.topology
        nics = {topology.nic_of(gpu) for gpu in host.gpus}
        for node, nic in nics:
            for link in (("nic-up", node, nic), ("nic-down", node, nic)):
                self._capacity[self._number(link)] = bandwidth / len(nics)
                self._change(link)

    def slow_link(self, link: Link, factor: float, cause: Any) -> None:
        """Divide a link's capacity by `factor` from now on; factors of several causes multiply."""
        self._slowed.setdefault(link, {})[cause] = factor
        self._change(link)

    def _change(self, link: Link) -> None:
        number, factors = self._number(link), self._slowed.get(link, {}).values()
        self.network.change(number, self._capacity[number] / prod(factors))

    def call_at(self, moment: float, act: Callable[[], None]) -> None:
        """Call `act` at a later moment."""
        then(self.env.timeout(max(moment - self.now, 0.0)), lambda _: act())

    @property
    def is_still(self) -> bool:
        """Whether nothing is left to happen."""
        return self.env.peek() == inf

    def fire_last(self, event: Event) -> None:
        """Let an event fire after all other events of this instant."""
        at_the_end_of_the_instant(event, behind_flows=True)

    def run(self, until: Event | None = None, most: int | None = None) -> bool:
        """Let time pass until an event has fired, or until no event is left. Returns False if
        `most` events have fired before that."""
        step = self.env.step
        with suppress(simpy.core.EmptySchedule):
            for _ in count() if most is None else range(most):
                if until is not None and until.processed:
                    break
                step()
            else:
                return False
        return True

    # Records.

    def span(
        self,
        role: int,
        stream: str,
        name: str,
        cause: Cause,
        start: float,
        end: float | None = None,
        **args: Any,
    ) -> None:
        """Record an activity that began at `start` and ended at `end`, by default now."""
        if len(self.spans) < self.keep_spans:
            end = self.now if end is None else end
            self.spans.append(Span(role, stream, name, cause, start, end, args))

    def timeline(self, roles: Sequence[Role], end: float) -> Timeline:
        return Timeline(roles=tuple(roles), spans=self.spans, end=end, events=self.events)

    @property
    def leaves_out_spans(self) -> bool:
        """Whether spans have been left out."""
        return len(self.spans) >= self.keep_spans > 0

    @property
    def events(self) -> int:
        """The number of events so far; simpy counts them but has no public name for the count."""
        return next(self.env._eid)

    @property
    def bytes(self) -> float:
        """The bytes that all links together have carried so far."""
        return sum(size for _, size in self.carried_by_link())

    def carried(self) -> dict[str, float]:
        """The bytes that every link has carried so far, by the link's name."""
        return {name_of(link): size for link, size in self.carried_by_link()}

    def carried_by_link(self, *, protocol: bool = False) -> Iterator[tuple[Link, float]]:
        """Yield every link with the bytes that it has carried so far. With `protocol`, they include
        the bytes that protocols of collectives add."""
        sizes = self.network.carried()
        for link, number in self._links.items():
            yield link, sizes[number] - (0.0 if protocol else self._of_protocol[link])

    def busy(self, end: float) -> dict[str, float]:
        """The share of the time until `end` (s) that each link needs for its bytes at full rate."""
        return {
            name_of(link): size / self._capacity[self._links[link]] / end
            for link, size in self.carried_by_link(protocol=True)
        }

    # Links.

    def _transfer(self, size: float, loads: LinkLoads, latency: float) -> Event:
        return self._launch(size, self._numbered(loads), latency)

    def _numbered(self, loads: LinkLoads) -> Loads:
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
            capacity = self.routes.capacity(link)
            number = self._links[link] = self.network.add_link(capacity)
            self._capacity[number] = capacity
        return number


def _fire(done: Event) -> None:
    done.succeed()
