"""The messages of a collective on the links of a cluster, in arrays, for collectives of any size.

A message waits for all messages that its sender has sent and received in earlier rounds (as in
`collectives.readings.messages` without lockstep).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.collectives.readings import exchanges
from sim.collectives.schedule import CollectiveSchedule
from sim.config.dataclass import dataclass
from sim.engine.fold import Edges, Indices, equitable_partition, renumbered
from sim.hardware.cluster.topology import Link, Topology

Floats = NDArray[np.float64]
_ROUNDS = 24  # rounds that refine the partition; further rounds cost more than they gain


class Run(NamedTuple):
    """Equal rounds, `times` in a row: message k goes over `hop[k]` and has `bytes[k]` bytes."""

    hop: Indices
    bytes: Floats
    times: int


@dataclass(frozen=True, eq=False)
class MessageGraph:
    """Ranks that are ready at `ready` (s), hops between ranks, and the rounds that use the hops.

    A message over a hop from `src` to `dst` takes `delay` (s) and then flows over the links `route`
    [hops, most links]; -1 stands for no link. Each byte of a message puts `load` bytes on a link.
    Links carry `capacity` B/s. A rank, hop or link may stand for equal ranks, hops or links: rank
    `role[r]` of the graph stands for rank r of the collective.
    """

    ready: Floats
    src: Indices
    dst: Indices
    delay: Floats
    route: Indices
    load: Floats
    capacity: Floats
    links: Sequence[Link]
    runs: Sequence[Run]
    role: Indices

    @property
    def rate(self) -> Floats:
        """B/s of each hop when nothing else uses its links."""
        with np.errstate(divide="ignore"):
            rates: Floats = (np.append(self.capacity, np.inf)[self.route] / self.load).min(1)
        return rates


def message_graph(
    schedule: CollectiveSchedule,
    size: float,
    topology: Topology,
    *,
    gpus: Sequence[int] | None = None,
    overhead: float = 0.0,
    late: Mapping[int, float] | None = None,
) -> MessageGraph:
    """The graph of a collective of `size` bytes, in which rank r is GPU `gpus[r]` (r by default).

    Each message takes `overhead` (s) before its latency. `late` has the seconds by which some ranks
    come later than the others.
    """
    places = np.arange(schedule.ranks) if gpus is None else np.asarray(gpus)
    found, ranks = exchanges(schedule), schedule.ranks
    pairs, hop = np.unique(
        np.concatenate([round_.src * ranks + round_.dst for round_, _ in found]),
        return_inverse=True,
    )
    src, dst = pairs // ranks, pairs % ranks
    ends = list(zip(places[src].tolist(), places[dst].tolist(), strict=True))
    routes = [topology.route(a, b) for a, b in ends]
    numbers = {
        link: i for i, link in enumerate(dict.fromkeys(x for route in routes for x in route))
    }
    route = np.full((len(routes), max(map(len, routes))), -1)
    for row, links_on_route in enumerate(routes):
        route[row, : len(links_on_route)] = [numbers[link] for link in links_on_route]
    ready = np.zeros(ranks)
    for rank, seconds in (late or {}).items():
        ready[rank] = seconds
    ends_of_runs = np.cumsum([len(round_.src) for round_, _ in found])[:-1]
    return MessageGraph(
        ready=ready,
        src=src,
        dst=dst,
        delay=overhead + np.array([topology.delay(a, b) for a, b in ends]),
        route=route,
        load=np.where(route < 0, 0.0, 1.0),
        capacity=np.array([topology.capacity(link) for link in numbers]),
        links=list(numbers),
        runs=[
            Run(hops, np.float64(size / schedule.chunks) * round_.chunks, times)
            for hops, (round_, times) in zip(np.split(hop, ends_of_runs), found, strict=True)
        ],
        role=np.arange(ranks),
    )


def folded(graph: MessageGraph) -> MessageGraph:
    """A graph with one rank, hop or link for each class of equal ranks, hops or links.

    In the coarsest equitable partition of ranks, hops and links (`sim.engine.fold`), the hops of a
    class load the links of a class alike. So one flow with the loads of all these hops is exact.
    """
    ranks, hops = len(graph.ready), len(graph.src)
    on = graph.route >= 0
    rows, links = np.nonzero(on)[0] + ranks, graph.route[on] + ranks + hops
    hop = np.arange(hops) + ranks
    sides = [(hop, graph.src, 1), (hop, graph.dst, 2), (rows, links, 3)]
    source = np.concatenate([part for a, b, _ in sides for part in (a, b)])
    target = np.concatenate([part for a, b, _ in sides for part in (b, a)])
    label = np.concatenate([np.full(len(a), way * k) for a, _, k in sides for way in (1, -1)])
    edges = Edges(source, target, label, np.ones_like(source))
    classes = equitable_partition(_colours(graph), edges, most=_ROUNDS)
    of_rank, of_hop, of_link = (
        renumbered(part) for part in np.split(classes, (ranks, ranks + hops))
    )
    first_hop = np.unique(of_hop, return_index=True)[1]
    first_link = np.unique(of_link, return_index=True)[1]
    many = np.bincount(of_hop)[:, None] / np.append(np.bincount(of_link), 1)[None, :]
    route = np.where(on, np.append(of_link, -1)[graph.route], -1)[first_hop]
    same = (route[:, :, None] == route[:, None, :]) & (route >= 0)[:, :, None]
    again = np.tril(same, -1).any(2)  # the hop's route has an earlier link of this class
    return MessageGraph(
        ready=graph.ready[np.unique(of_rank, return_index=True)[1]],
        src=of_rank[graph.src[first_hop]],
        dst=of_rank[graph.dst[first_hop]],
        delay=graph.delay[first_hop],
        route=np.where(again, -1, route),
        load=np.where(again, 0.0, same.sum(2) * np.take_along_axis(many, route, 1)),
        capacity=graph.capacity[first_link],
        links=[graph.links[link] for link in first_link.tolist()],
        runs=[_folded_run(run, of_hop) for run in graph.runs],
        role=of_rank[graph.role],
    )


def _folded_run(run: Run, of_hop: Indices) -> Run:
    hops, first = np.unique(of_hop[run.hop], return_index=True)
    return Run(hops, run.bytes[first], run.times)


def _colours(graph: MessageGraph) -> list[tuple[object, ...]]:
    """Initial colours of ranks, hops and links, each by its own properties."""
    used: list[list[tuple[int, float]]] = [[] for _ in graph.src]
    for number, run in enumerate(graph.runs):
        for hop, size in zip(run.hop.tolist(), run.bytes.tolist(), strict=True):
            used[hop].append((number, size))
    hops = zip(graph.delay.tolist(), map(tuple, used), strict=True)
    links = zip((link[0] for link in graph.links), graph.capacity.tolist(), strict=True)
    return [
        *(("rank", seconds) for seconds in graph.ready.tolist()),
        *(("hop", *hop) for hop in hops),
        *(("link", *link) for link in links),
    ]
