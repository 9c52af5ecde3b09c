"""Gloo: the collectives of torch.distributed on CPUs, over TCP.

Gloo has one algorithm for each call (facebookincubator/gloo, allreduce.cc, allgather.cc,
broadcast.cc, reduce.cc). Rings pass their chunks on in segments, of which two are in flight. A
broadcast is a binomial tree in which a rank serves all its children at once. torch's
reduce-scatter is a whole all-reduce (ProcessGroupGloo.cpp).
"""

from collections.abc import Iterator, Mapping
from dataclasses import field

from sim.collectives.algorithms import direct, ring
from sim.collectives.interconnect import CallCost, CollectiveCall, Interconnect, on_levels, refused
from sim.collectives.schedule import (
    ChunkSend,
    CollectiveKind,
    CollectiveSchedule,
    GroupShape,
    LevelLoads,
    schedule,
)
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.units import Bytes, BytesPerSecond, Portion, Seconds
from sim.program.operations import AUTO


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRates:
    """Rates of the processors in one kind of call, for its copies, sums and buffers.

    `message` (s) is the time of one message. The first `cache` bytes of a buffer are handled at the
    rate `near`, further bytes at `far`.
    """

    message: Seconds
    near: BytesPerSecond
    far: BytesPerSecond
    cache: Bytes

    def seconds(self, size: float) -> float:
        """Seconds of the processors for a buffer that is sent once.

        >>> HostRates(message=0.0, near=4e9, far=1e9, cache=4e6).seconds(6e6)
        0.003
        """
        return min(size, self.cache) / self.near + max(0.0, size - self.cache) / self.far


@dataclass(frozen=True, slots=True, kw_only=True)
class Gloo:
    """The backend: the content of topologies/backends/gloo.toml.

    `message` (s) is the software's time for one message: half of a ping-pong. `segment` is the
    largest piece of a chunk. `acknowledgements` is how many acknowledgements TCP returns for each
    packet, each as long as a packet's headers. `pace` has the processors' rates by kind of call,
    where they were measured. A call then lasts as long as its wires or its processors need.
    """

    message: Seconds
    segment: Bytes
    acknowledgements: Portion
    pace: Mapping[str, HostRates] = field(default_factory=dict)

    def returned(self, efficiency: float) -> float:
        """Bytes of acknowledgements for each byte on the wire, on the links' other direction.

        Headers are 1 - `efficiency` of the wire's bytes.
        """
        return self.acknowledgements * (1.0 - efficiency)

    def call_cost(self, call: CollectiveCall) -> CallCost:
        """The cost of a call; where data go both ways, links carry acknowledgements too.

        Inside a node, packets are so long that their headers do not matter.
        Raises `InputError` for routed items.
        """
        if call.shape.ranks == 1:
            return CallCost(latency=0.0, algorithm="none", protocol="none")
        if call.routed is not None:
            fault = "gloo does not route items to experts"
            raise InputError("gloo backend", fault, 'set plan.dispatcher = "flat"')
        return min((self._cost(call, n) for n in call.algorithms or (AUTO,)), key=call.duration)

    def _cost(self, call: CollectiveCall, algorithm: str) -> CallCost:
        size, shape, interconnect = call.size, call.shape, call.interconnect
        both = 1.0 + self.returned(interconnect.efficiency)
        loads, rounds, name = _loads(call, both, algorithm)
        alone, _, _ = _loads(call, 1.0, algorithm)
        sent = _in_tree(shape) if name == "binomial" else alone
        port, nic = size * loads.port, size * loads.nic / interconnect.efficiency
        message, once = (
            self.message,
            size / (interconnect.nic_bandwidth or interconnect.port_bandwidth),
        )
        if pace := self.pace.get(call.kind):
            message, seconds = pace.message, pace.seconds(size)
            port, nic = _at_least(
                seconds * max(alone.port, alone.nic), port, nic, shape, interconnect
            )
            once = max(once, seconds)
        if name == "ring" and call.kind != "broadcast":
            pieces = segments(size, shape.ranks, self.segment)
            message = self._filling(message, once, pieces, shape)
        return CallCost(
            latency=rounds * message,
            port=port,
            nic=nic,
            sent_port=size * sent.port,
            sent_nic=size * sent.nic,
            algorithm=name,
            protocol="tcp",
        )

    @staticmethod
    def _filling(message: float, once: float, pieces: int, shape: GroupShape) -> float:
        """Seconds that one turn around the ring takes beyond the time of its bytes.

        Two segments are in flight. With t the time of a segment's bytes and m the `message`, a turn
        of N segments takes max(m + N t, N (m + t) / 2). `once` is the time of the whole buffer.
        """
        turn = (shape.ranks - 1) * pieces
        return max(message, turn * (message - once / (pieces * shape.ranks)) / 2.0)


def _at_least(
    seconds: float, port: float, nic: float, shape: GroupShape, interconnect: Interconnect
) -> tuple[float, float]:
    """Bytes on ports and NICs, increased so that ports (on one node) or NICs need `seconds`."""
    if shape.nodes == 1:
        return max(port, seconds * interconnect.port_bandwidth), nic
    return port, max(nic, seconds * interconnect.nic_share(shape.per_node))


def segments(size: float, ranks: int, largest: float) -> int:
    """Segments per chunk: at least two, of at most `largest` bytes.

    >>> segments(16 * 2**20, 4, 2**20), segments(2**20, 4, 2**20)
    (4, 2)
    """
    return max(2, int(-(-size // (ranks * largest))))


def _loads(call: CollectiveCall, both: float, name: str) -> tuple[LevelLoads, int, str]:
    """Bytes for each byte of the call, dependent rounds (turns of a ring), and the algorithm."""
    if name == "nvls":
        raise refused(call, name, "runs in a switch, which Gloo does not use")
    nics = call.interconnect.nic_share(call.shape.per_node) / (call.interconnect.nic_bandwidth or 1)
    loads, rounds, usual = _usual(call.kind, call.shape, both, int(nics))
    if name in (AUTO, usual):
        return loads, rounds, usual
    loads, steps = on_levels(name, call.kind, call.shape)
    return _times(loads, both), steps.intra + steps.inter, name


def _usual(
    kind: CollectiveKind, shape: GroupShape, both: float, nics: int
) -> tuple[LevelLoads, int, str]:
    """Gloo's only algorithm for a call between nodes of `nics` NICs each."""
    match kind:
        case "all_reduce" | "reduce_scatter":
            return _times(ring.loads("all_reduce", shape), both), 2, "ring"
        case "all_gather":
            return _times(ring.loads("all_gather", shape), both), 1, "ring"
        case "broadcast":
            loads = LevelLoads(port=_in_turn(shape.ranks))
            if shape.nodes > 1:
                nic = max(loads.port, _of_busiest_nic(shape, nics))
                loads = LevelLoads(port=_of_tree(shape).port, nic=nic)
            return loads, (shape.ranks - 1).bit_length(), "binomial"
        case "reduce":
            around = _times(ring.loads("reduce_scatter", shape), both)
            home = direct.loads("reduce", shape)
            share = 1.0 / shape.ranks
            nic = around.nic + share * home.nic
            return LevelLoads(port=around.port + share * home.port, nic=nic), 2, "ring"
        case "all_to_all":
            return _times(direct.loads(kind, shape), both), shape.ranks - 1, "direct"
        case "gather" | "scatter" | "sendrecv":
            return direct.loads(kind, shape), 1, "direct"
    return direct.loads("point_to_point", shape), 1, "direct"


def _times(loads: LevelLoads, factor: float) -> LevelLoads:
    return LevelLoads(port=loads.port, nic=factor * loads.nic)


def _in_turn(ranks: int) -> float:
    """How many buffers the slowest path of the binomial tree sends one after the other.

    A rank's c children share its link, so each child gets its copy after c S/B.

    >>> [_in_turn(n) for n in (2, 3, 4, 8)]
    [1.0, 2.0, 3.0, 6.0]
    """
    arrival = [0.0] * ranks
    for rank in range(ranks):
        children = list(_children(rank, ranks))
        for child in children:
            arrival[child] = arrival[rank] + len(children)
    return max(arrival)


def _of_tree(shape: GroupShape) -> LevelLoads:
    """Bytes of the binomial tree out of the root's port and out of its node, for each byte of a
    broadcast.

    >>> [_of_tree(GroupShape.of(n, 8)) for n in (8, 16)]
    [LevelLoads(port=3.0, nic=0.0), LevelLoads(port=3.0, nic=8.0)]
    """
    near = sum(child < shape.per_node for child in _children(0, shape.ranks))
    return LevelLoads(port=float(near), nic=float(sum(_away(shape))))


def _in_tree(shape: GroupShape) -> LevelLoads:
    """Bytes that a member and a node send on average for each byte of a broadcast.

    >>> [_in_tree(GroupShape.of(n, 8)) for n in (8, 16)]
    [LevelLoads(port=0.875, nic=0.0), LevelLoads(port=0.4375, nic=4.0)]
    """
    n, each = shape.ranks, shape.per_node
    away = sum(c // each != rank // each for rank in range(n) for c in _children(rank, n))
    return LevelLoads(port=(n - 1 - away) / n, nic=away / shape.nodes)


def _of_busiest_nic(shape: GroupShape, nics: int) -> float:
    """Bytes that would leave the root's node if all of its NICs sent as much as the busiest.

    >>> [_of_busiest_nic(GroupShape.of(9, 8), nics) for nics in (1, 8)]
    [1.0, 8.0]
    """
    away = _away(shape)
    busy = [0] * nics
    for rank, copies in enumerate(away):
        busy[rank * nics // len(away)] += copies
    return float(nics * max(busy))


def _away(shape: GroupShape) -> list[int]:
    """The copies that each rank of the root's node sends to other nodes in a broadcast."""
    first = range(shape.per_node)
    return [sum(c not in first for c in _children(rank, shape.ranks)) for rank in first]


def _children(rank: int, ranks: int) -> Iterator[int]:
    """The ranks that a rank sends to in a broadcast from rank 0.

    >>> [list(_children(rank, 8)) for rank in (0, 1, 2, 3)]
    [[1, 2, 4], [3, 5], [6], [7]]
    """
    bit = 1 << rank.bit_length()
    while rank + bit < ranks:
        yield rank + bit
        bit <<= 1


def broadcast(ranks: int) -> CollectiveSchedule:
    """A binomial tree (broadcast.cc): T = `_in_turn` S/B. Round t has the sends of depth t.

    >>> [[(send.src, send.dst) for send in round_] for round_ in broadcast(4).rounds]
    [[(0, 1), (0, 2)], [(1, 3)]]
    """
    rounds: list[list[ChunkSend]] = []
    level = [0]
    while level:
        sends = [ChunkSend(rank, child, 0) for rank in level for child in _children(rank, ranks)]
        rounds.append(sends)
        level = [send.dst for send in sends]
    return schedule("broadcast", ranks, 1, rounds)


def all_reduce(ranks: int, pieces: int = 2) -> CollectiveSchedule:
    """A ring in which rank r sends to rank r - 1, each chunk in `pieces` segments (allreduce.cc).

    T = 2 message + 2(n-1)/n S/B while a segment takes longer than a message's fixed cost.

    >>> len(all_reduce(4).rounds)
    12
    """
    rounds = [
        *_around(ranks, pieces, first=1, reduce=True),
        *_around(ranks, pieces, first=0, reduce=False),
    ]
    return schedule("all_reduce", ranks, ranks * pieces, rounds)


def _around(ranks: int, pieces: int, *, first: int, reduce: bool) -> Iterator[list[ChunkSend]]:
    """In round i rank r passes segment (r + first) pieces + i on to rank r - 1."""
    count = ranks * pieces
    for i in range((ranks - 1) * pieces):
        yield [
            ChunkSend(rank, (rank - 1) % ranks, ((rank + first) * pieces + i) % count, reduce)
            for rank in range(ranks)
        ]
