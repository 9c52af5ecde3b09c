"""A collective message by message: on arrays at any size, and on the clock as a reference.
Messages that do not contend are played round by round in (max, +), without a clock."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from simpy.events import Event

from sim.collectives.readings import Message
from sim.collectives.schedule import CollectiveSchedule
from sim.config import limit
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.engine.events import Clock, carried, then
from sim.engine.fair_shares import Loads
from sim.engine.message_flows import FlowPlay
from sim.engine.message_graph import Floats, MessageGraph, Run, folded, message_graph
from sim.engine.network import Network
from sim.engine.timeline import Role, Span, Timeline
from sim.hardware.cluster.topology import Link, Topology
from sim.program.causes import DATA

_EQUAL = 1e-13  # times that differ by at most this share count as equal


def replay(graph: MessageGraph) -> Floats | None:
    """When each rank is done (s), or None if two messages would meet on a link.

    In a round, message k ends at ready[src_k] + delay_k + bytes_k / rate_k; a rank is ready when
    its last message has ended. Every message is taken to have its links to itself. Each round is
    checked for messages that meet. If no messages meet, the answer is exact.
    """
    ready, busy = graph.ready.copy(), np.full(len(graph.capacity) + 1, -np.inf)
    for run in graph.runs:
        if not _replay_run(graph, run, ready, busy):
            return None
    return ready


def _replay_run(graph: MessageGraph, run: Run, ready: Floats, busy: Floats) -> bool:
    """Play a run: update the times at which ranks are `ready` and links were last `busy`. Returns
    False if two messages meet on a link.

    Once a round shifts all times by equal amounts, all later rounds do so, too (Baccelli et al.
    1992, section 3.7).
    """
    src, dst, delay = graph.src[run.hop], graph.dst[run.hop], graph.delay[run.hop]
    route, seconds = graph.route[run.hop], run.bytes / graph.rate[run.hop]
    used = np.bincount(route.ravel() + 1, weights=graph.load[run.hop].ravel())[1:]
    if (used > 1.0 + _EQUAL).any():
        return False
    members, links = np.unique(np.concatenate((src, dst))), np.unique(route[route >= 0])
    for played in range(1, run.times + 1):
        flowing = ready[src] + delay
        if (busy[route].max(1) > flowing * (1.0 + _EQUAL)).any():
            return False
        end = flowing + seconds
        before, was_busy = ready[members], busy[links]
        np.maximum.at(ready, src, end)
        np.maximum.at(ready, dst, end)
        np.maximum.at(busy, route.ravel(), np.repeat(end, route.shape[1]))
        busy[-1] = -np.inf
        if played == run.times or played % 2:
            continue  # only every other round is checked for repetition
        shift = np.concatenate((ready[members] - before, busy[links] - was_busy))
        if shift.max() - shift.min() <= _EQUAL * ready.max():
            ready[members] += (run.times - played) * shift[0]
            busy[links] += (run.times - played) * shift[0]
            break
    return True


_TRACED = 200_000  # the most messages that a trace can show
_OF_HOP = 3e-5  # s on one core for each pair of ranks that exchange messages


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedMessages:
    """When each rank was done (s), the number of messages, and whether some messages `contend` on a
    link. If they do, `instants` counts the moments at which rates were set. `roles` counts the
    played ranks, each of which may stand for equal ranks."""

    done: Floats
    messages: int
    contend: bool = False
    instants: int = 0
    roles: int = 0

    @property
    def seconds(self) -> float:
        """When the last rank was done (s)."""
        return float(self.done.max())


def play_collective(
    schedule: CollectiveSchedule,
    size: float,
    topology: Topology,
    *,
    gpus: Sequence[int] | None = None,
    overhead: float = 0.0,
    late: Mapping[int, float] | None = None,
    fold: bool = True,
) -> PlayedMessages:
    """Play a collective of `size` bytes message by message, with the same answer as
    `play_messages`. A message waits for all messages that its sender has sent and received in
    earlier rounds (`collectives.readings.messages` without lockstep).

    Messages that never meet on a link are replayed without a clock. Otherwise they are played as
    flows; with `fold`, equal ranks, hops and links are played once.

    >>> from sim.collectives.algorithms import ring
    >>> from sim.hardware.cluster import topology
    >>> node = topology.load("dgx-a100-hdr").with_gpus(8)
    >>> played = play_collective(ring.all_gather(8), 8e9, node)
    >>> round(played.seconds * node.capacity(("port-up", 0)) / 7e9, 3), played.messages
    (1.0, 56)
    """
    pairs = sum(len(round_) for round_ in schedule.rounds[:1])
    limit.refuse_long(
        f"{schedule.kind} by messages", f"{pairs:,} messages at once", pairs * _OF_HOP
    )
    graph = message_graph(schedule, size, topology, gpus=gpus, overhead=overhead, late=late)
    count = sum(len(run.hop) * run.times for run in graph.runs)
    done = replay(graph)
    if done is not None:
        return PlayedMessages(done=done, messages=count)
    graph = folded(graph) if fold else graph
    play = FlowPlay(graph)
    done = play.play()[graph.role]
    roles = len(graph.ready)
    return PlayedMessages(
        done=done, messages=count, contend=True, instants=play.instants, roles=roles
    )


def trace_collective(
    schedule: CollectiveSchedule,
    size: float,
    topology: Topology,
    *,
    gpus: Sequence[int] | None = None,
    late: Mapping[int, float] | None = None,
) -> Timeline:
    """Play a collective and return its timeline. Each rank is a role, each message a span of its
    sender, on a stream for each receiver. Raises `InputError` for too many messages."""
    graph = message_graph(schedule, size, topology, gpus=gpus, late=late)
    count = sum(len(run.hop) * run.times for run in graph.runs)
    if count > _TRACED:
        fault = f"{count:,} messages are more than a trace can show ({_TRACED:,})"
        raise InputError("trace", fault, "use fewer GPUs")
    play = FlowPlay(graph, record=True)
    end, kind = float(play.play().max()), {"kind": "send"}
    roles = [
        Role(index=rank, name=f"rank {rank}", stage=0, ranks=1, first_rank=rank)
        for rank in range(schedule.ranks)
    ]
    ends = list(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    spans = [
        Span(ends[hop][0], f"to {ends[hop][1]}", f"round {number}", DATA, begin, arrived, kind)
        for hop, number, begin, arrived in play.sent
    ]
    return Timeline(roles=tuple(roles), spans=spans, end=end, events=play.instants)


def play_messages(
    messages: Sequence[Message],
    topology: Topology,
    *,
    gpus: Sequence[int] | None = None,
    overhead: float = 0.0,
) -> float:
    """Seconds until the last message has arrived.

    Rank r is GPU `gpus[r]` (r itself by default). A message starts when all messages in its `after`
    have arrived. It takes `overhead` (s, software) and the latencies of its route. Then it flows
    over the links of its route, which it shares with all other messages.

    >>> from sim.collectives.algorithms import ring
    >>> from sim.collectives.readings import messages
    >>> from sim.hardware.cluster import topology
    >>> node = topology.load("dgx-a100-hdr").with_gpus(8)
    >>> alone = play_messages(messages(ring.all_gather(8), 8e9), node)
    >>> round(alone * node.capacity(("port-up", 0)) / 7e9, 3)
    1.0
    """
    player = _MessagePlayer(messages, topology, gpus, overhead)
    player.env.run()
    return player.end  # alarms that were set before rates changed may ring later


class _MessagePlayer:
    def __init__(
        self,
        messages: Sequence[Message],
        topology: Topology,
        gpus: Sequence[int] | None,
        overhead: float,
    ) -> None:
        self.topology, self.gpus, self.overhead = topology, gpus, overhead
        self.env, self.end = Clock(), 0.0
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
        self.delay = {m.id: overhead + topology.delay(*self._ends(m)) for m in messages}
        self.loads: dict[int, Loads] = {
            i: tuple((index[link], 1.0) for link in route) for i, route in routes.items()
        }
        for message in messages:
            if not message.after:
                self._send(message.id)

    def _route(self, message: Message) -> tuple[Link, ...]:
        return self.topology.route(*self._ends(message))

    def _ends(self, message: Message) -> tuple[int, int]:
        """The GPUs of a message's two ranks."""
        source, target = message.src, message.dst
        return (source, target) if self.gpus is None else (self.gpus[source], self.gpus[target])

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
        self.end = float(self.env.now)
        for follower in self.followers[number]:
            self.missing[follower] -= 1
            if self.missing[follower] == 0:
                self._send(follower)
