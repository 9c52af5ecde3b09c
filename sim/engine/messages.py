"""A collective message by message: exact, for small groups; what the fluid reading is held to."""

from collections import defaultdict
from collections.abc import Sequence

import simpy
from simpy.events import Event

from sim.collectives.messages import Message
from sim.engine.network import Loads, Network, carried, then
from sim.hardware.cluster.topology import Link, Topology


def play_messages(
    messages: Sequence[Message],
    topology: Topology,
    *,
    gpus: Sequence[int] | None = None,
    overhead: float = 0.0,
) -> float:
    """Seconds until the last message has arrived.

    Rank r is GPU `gpus[r]` (r itself by default). A message starts when all in its `after` have
    arrived; it takes `overhead` (s, software) and the latencies of its route, then flows over the
    route's links and shares them with all other messages.

    >>> from sim.collectives.algorithms import ring
    >>> from sim.collectives.messages import messages
    >>> from sim.hardware.cluster import topology
    >>> node = topology.load("dgx-a100-hdr").with_gpus(8)
    >>> alone = play_messages(messages(ring.all_gather(8), 8e9), node)
    >>> round(alone * node.capacity(("port-up", 0)) / 7e9, 3)
    1.0
    """
    player = _MessagePlayer(messages, topology, gpus, overhead)
    player.env.run()
    return float(player.env.now)


class _MessagePlayer:
    def __init__(
        self,
        messages: Sequence[Message],
        topology: Topology,
        gpus: Sequence[int] | None,
        overhead: float,
    ) -> None:
        self.topology, self.gpus, self.overhead = topology, gpus, overhead
        self.env = simpy.Environment()
        self.by_id = {message.id: message for message in messages}
        self.missing = {message.id: len(message.after) for message in messages}
        self.followers: dict[int, list[int]] = defaultdict(list)
        for message in messages:
            for cause in message.after:
                self.followers[cause].append(message.id)
        routes = {message.id: self._route(message) for message in messages}
        links = list(dict.fromkeys(link for route in routes.values() for link in route))
        index = {link: i for i, link in enumerate(links)}
        self.network = Network(self.env, [topology.capacity(link) for link in links])
        self.delay = {i: overhead + _latency(topology, route) for i, route in routes.items()}
        self.loads: dict[int, Loads] = {
            i: tuple((index[link], 1.0) for link in route) for i, route in routes.items()
        }
        for message in messages:
            if not message.after:
                self._send(message.id)

    def _route(self, message: Message) -> tuple[Link, ...]:
        if self.gpus is None:
            return self.topology.route(message.src, message.dst)
        return self.topology.route(self.gpus[message.src], self.gpus[message.dst])

    def _send(self, number: int) -> None:
        then(self.env.timeout(self.delay[number], number), self._flow)

    def _flow(self, delay: Event) -> None:
        number = carried(delay)
        if self.by_id[number].bytes > 0:
            size, loads = self.by_id[number].bytes, self.loads[number]
            self.network.start(size, loads, self._arrived, number)
        else:
            self._arrived(number)

    def _arrived(self, number: int) -> None:
        for follower in self.followers[number]:
            self.missing[follower] -= 1
            if self.missing[follower] == 0:
                self._send(follower)


def _latency(topology: Topology, route: Sequence[Link]) -> float:
    return sum(topology.latency(link) for link in route)
