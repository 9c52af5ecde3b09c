"""Times of a collective by size, algorithm and protocol, as nccl-tests would print them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.collectives.interconnect import CallCost, check
from sim.collectives.measured_network import bus_factor
from sim.collectives.schedule import CollectiveKind, CollectiveSchedule, algorithms, kind_named
from sim.config import gate, limit
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.grouped import grouped
from sim.config.units import quantity_of
from sim.engine.group_loads import group_loads, shape_of
from sim.engine.machine import Machine
from sim.engine.messages import play_collective, trace_collective
from sim.engine.timeline import Timeline
from sim.hardware.cluster.link_names import link_name, links_named
from sim.hardware.cluster.topology import Link, Topology
from sim.kind import cluster_scenario
from sim.program.operations import AlgorithmRule
from sim.results.answer import Answer, Inputs
from sim.results.formatting import several
from sim.scenario.settings import Settings, settings_of
from sim.scenario.setup import load_topology, machine
from sim.variability.laws import generator

_ELEMENT = 4  # bytes of nccl-tests' float
# Collectives whose `count` is a rank's share: the elements of all ranks divided by the ranks.
_DIVIDED = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
_ALIKE = 1e-9  # links whose seconds differ by a smaller share count as equally busy
_OF_GPU = 1.2e-5  # s on one core, for each GPU and size; preparation takes as long as three sizes
_MOST_SIZES = 64  # the most sizes of a span; each is twice the size before
_HUGE = 2.0**50  # bytes, of which the latency is a negligible part
MESSAGES = "messages"
"""The protocol of rows that are played message by message, without the library's software. Such a
row uses a single ring or tree through the ranks in order; NCCL has a ring or tree for each
channel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveTime:
    """A row: `size` in bytes, `count` elements per rank, `seconds`, and nccl-tests' two bandwidths
    (B/s). For each size, the library takes the `chosen` row. `links` are the busiest links of each
    kind, with the share of the time in which they carry bytes."""

    size: float
    count: int
    algorithm: str
    protocol: str
    seconds: float
    algbw: float
    busbw: float
    chosen: bool = False
    links: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveTimes(Answer):
    """All rows of a collective among GPUs of a topology. `bound` is the bus bandwidth (B/s) that
    the links would allow the best algorithm without any latency.

    Rank r is GPU `places[r]`. A rank in `late` arrives that number of seconds after the other
    ranks. A library's collective begins when the last rank has arrived; a message begins as soon as
    the messages that it waits for have arrived. Times count from the arrival of the first rank.
    """

    view = "sim.interface.views.collective"
    picture = "sim.interface.plots.collective:times"
    unwritten = ("topology", "places", "cables")
    derived = ("gpus",)
    frame_rows = "rows"

    kind: CollectiveKind
    inputs: Inputs
    topology: Topology
    places: Sequence[int]
    late: Mapping[int, float] = field(default_factory=dict)
    rows: tuple[CollectiveTime, ...]
    bound: float
    cables: Mapping[str, float] = field(default_factory=dict)

    @property
    def gpus(self) -> int:
        return len(self.places)

    @property
    def choice(self) -> CollectiveTime:
        """The row that the library chooses for the largest size."""
        return [row for row in self.rows if row.chosen][-1]

    @property
    def busy(self) -> dict[str, float]:
        """Shares of the chosen row's time in which links carry bytes. There is a share for the
        busiest link of each kind, and for each of `cables` (links between nodes or routers) by
        name."""
        shares: dict[str, float] = {}
        for name, share in self.choice.links.items():
            kind = str(links_named(name.partition(" and ")[0])[0][0]).partition("-")[0]
            shares[kind] = max(shares.get(kind, 0.0), share)
        return {**shares, **self.cables}

    def trace(self) -> Timeline:
        """Return every message of the first algorithm that consists of rounds, for the largest
        size. Raises `InputError` where no algorithm consists of rounds."""
        for row in self.rows:
            if schedule := _rounds(row.algorithm, self.kind, self.gpus):
                return trace_collective(
                    schedule, self.rows[-1].size, self.topology, gpus=self.places, late=self.late
                )
        raise InputError(
            "--trace", "none of these algorithms consists of messages", "name one: --algorithm ring"
        )


def collective(
    kind: str,
    sizes: float | str | Iterable[float | str],
    topology: str | Topology,
    *,
    gpus: int | None = None,
    algorithm: Sequence[str] = (),
    slow: Mapping[str, float] | None = None,
    traffic: Mapping[str, str] | None = None,
    late: Mapping[int, float | str] | None = None,
    placement: str | Sequence[int] = (),
    messages: bool = False,
    settings: Settings = (),
) -> CollectiveTimes:
    """Predict the times of a collective. `sizes` are counted as nccl-tests counts them: in bytes,
    or as text with a unit ("256 MiB"); one size, several, or a doubling span ("1KiB..8GiB").

    `algorithm` names algorithms that replace the library's candidates. `slow` divides the bandwidth
    of links by factors; `traffic` is the bandwidth of links that other traffic takes ("100 Gb/s").
    Both become [[straggler]] tables of a scenario. `settings` are settings of a scenario that
    concern its cluster ("network.bandwidth=100 Gb/s"). `late` maps ranks to the seconds after which
    they arrive. `placement` names the GPU of each rank, or is "random" (GPUs of the topology in a
    random order; "random:7" takes another seed). A library finds its rings whatever the order is,
    but messages follow the order. With `messages`, algorithms are also played message by message at
    the rates of their links. Raises `InputError`.

    >>> times = collective("all_reduce", 2**30, "dgx-h100-ndr", gpus=8)
    >>> [row.algorithm for row in times.rows if row.chosen]
    ['nvls']
    """
    changes = settings_of(settings)
    sick = [{"link": link, "factor": factor} for link, factor in (slow or {}).items()]
    sick += [{"link": link, "traffic": bandwidth} for link, bandwidth in (traffic or {}).items()]
    given = changes.get("straggler", [])
    if sick and isinstance(given, list | tuple):
        changes["straggler"] = [*given, *sick]
    on, places = placed(topology, changes, gpus, placement)
    every = list(_sizes(sizes))
    limit.refuse_long(
        "collective", f"{len(places):,} GPUs", len(places) * (3 + len(every)) * _OF_GPU
    )
    name = kind_named(kind, "collective")
    check(
        [AlgorithmRule(use=(given_name,), kinds=(name,)) for given_name in algorithm], "--algorithm"
    )
    if len(places) == 1 or (name == "point_to_point" and len(places) > 2):
        fault, many = (
            f"{kind} among {several(len(places), 'GPU')}",
            "2" if name == "point_to_point" else "more",
        )
        raise InputError("collective", fault, f"use {many} (--gpus)")
    bench = _Bench(name, on, places, tuple(algorithm), _lateness(late or {}, len(places)))
    rows = [row for size in every for row in bench.rows(size, messages=messages)]
    bound = max(bench.bus(_HUGE, max(bench.wires(cost).values())) for cost in bench.costs(_HUGE))
    inputs = Inputs(
        cluster=on.topology.name,
        device=on.topology.device.name,
        gpus=len(places),
        change=changes,
        notes=on.topology.odd,
    )
    return CollectiveTimes(
        kind=name,
        inputs=inputs,
        topology=on.topology,
        places=places,
        late=bench.late,
        rows=tuple(rows),
        bound=bound,
        cables=bench.cables,
    )


def placed(
    topology: str | Topology,
    changes: Mapping[str, Any],
    gpus: int | None = None,
    placement: str | Sequence[int] = "",
) -> tuple[Machine, Sequence[int]]:
    """Return the cluster with its slow links, and the GPU of each rank. Raises `InputError` for
    ranks that compute slowly, and for GPUs that do not exist."""
    scenario = cluster_scenario(topology, changes)
    for straggler in scenario.straggler:
        if straggler.link is None:
            fault = "a rank computes slowly, but a collective alone computes nothing"
            raise InputError("straggler", fault, "name a link, or let a rank be late (--late)")
    whole = load_topology(scenario)
    if not placement:
        whole = whole.with_gpus(gpus) if gpus else whole
    on = machine(whole, None, scenario.straggler, scenario.name)
    return on, _places(placement, whole.gpus, gpus)


def _places(placement: str | Sequence[int], whole: int, gpus: int | None) -> Sequence[int]:
    if not placement:
        return range(whole)
    if isinstance(placement, str):
        return _random(placement, whole, gpus or whole)
    known = list(dict.fromkeys(placement))
    wrong = [place for place in known if not 0 <= place < whole]
    if wrong or len(known) < len(placement):
        fault = f"there is no GPU {wrong[0]}" if wrong else "names a GPU twice"
        raise InputError("--placement", fault, f"name each once, of 0 to {whole - 1}")
    if gpus not in (None, len(known)):
        fault = f"{len(known)} places for {gpus} GPUs"
        raise InputError("--placement", fault, "leave --gpus out")
    return known


def _random(placement: str, whole: int, gpus: int) -> Sequence[int]:
    word, _, seed = placement.partition(":")
    if word != "random" or not (seed or "0").isdecimal():
        remedy = "write random, random:SEED, or the GPU of each rank: 0,8,16"
        raise InputError("--placement", f"{placement!r} is no placement", remedy)
    if gpus > whole:
        fault = f"{gpus:,} ranks do not fit on {whole:,} GPUs"
        raise InputError("--placement", fault, "set topology.gpus to more")
    limit.refuse_large("--placement", f"{whole:,} GPUs in any order", 8 * whole)
    drawn = generator(int(seed or 0), "placement").permutation(whole)
    return [int(place) for place in drawn[:gpus]]


def _sizes(given: float | str | Iterable[float | str]) -> Iterator[float]:
    """Yield the bytes of each size. Raises `InputError`."""
    if isinstance(given, str) and ".." in given:
        yield from _span(given)
    elif isinstance(given, str | float | int):
        bare = not isinstance(given, str) or given.strip().isdecimal()
        size = float(given) if bare else quantity_of("size", str(given), "B")
        if fault := gate.fault_of(size) or ("is less than a byte" if size < 1.0 else ""):
            raise InputError("size", f"{given} {fault}", "write it like 1 MiB")
        yield size
    else:
        for text in given:
            yield from _sizes(text)


def _span(text: str) -> Iterator[float]:
    low, high = (next(_sizes(end)) for end in text.split("..", 1))
    if low > high:
        remedy = "write the smaller size first"
        raise InputError("--sizes", f"{text!r} ends before it begins", remedy)
    yield from (low * 2**i for i in range(_MOST_SIZES) if low * 2**i <= high)


def _lateness(late: Mapping[int, float | str], ranks: int) -> dict[int, float]:
    """Return the delay of each late rank (s). Raises `InputError`."""
    found = {}
    for rank, text in late.items():
        where = f"--late {rank}"
        if not 0 <= rank < ranks:
            raise InputError(where, "there is no such rank", f"name one of 0 to {ranks - 1}")
        found[rank] = quantity_of(where, text, "s") if isinstance(text, str) else float(text)
        if not 0.0 <= found[rank] < inf:
            raise InputError(where, f"{text} is no delay", 'write it like "20 us"')
    return found


def _rounds(algorithm: str, kind: CollectiveKind, ranks: int) -> CollectiveSchedule | None:
    """Return the messages of an algorithm; None where it does not consist of rounds."""
    builder = getattr(algorithms().get(algorithm), kind, None)
    found: CollectiveSchedule | None = builder and builder(ranks)
    return found


class _Bench:
    """One collective on one machine: its costs, links and rows for any size."""

    def __init__(
        self,
        kind: CollectiveKind,
        machine: Machine,
        places: Sequence[int],
        algorithm: tuple[str, ...],
        late: Mapping[int, float],
    ) -> None:
        self.kind, self.machine, self.places = kind, machine, places
        self.algorithm, self.late, self.topology = algorithm, late, machine.topology
        self.cables = dict[str, float]()  # busy shares of the fastest row of the last size
        self.shape = shape_of(places, self.topology)
        # By algorithm: its links, and seconds for each byte of ports and of NICs [links, 2].
        self._seconds: dict[str, tuple[list[Link], NDArray[np.float64]]] = {}

    def costs(self, size: float) -> list[CallCost]:
        """Return the costs of the algorithms that the library considers, or of the requested
        algorithms. Raises `InputError`."""
        try:
            return self.machine.candidates(self.kind, size, self.shape, self.algorithm)
        except ValueError as error:
            raise InputError.of("collective", error) from None

    def bus(self, size: float, seconds: float) -> float:
        return bus_factor(self.kind, len(self.places)) * size / seconds

    def wires(self, cost: CallCost) -> dict[Link, float]:
        """Return the seconds for which each link carries bytes at its full rate."""
        if cost.algorithm not in self._seconds:
            loads = group_loads(self.places, self.topology, self.shape, self.kind, cost.algorithm)
            rates = np.array([self.topology.capacity(link) for link in loads])
            seconds = np.array([*loads.values()]).reshape(-1, 2) / rates[:, None]
            self._seconds[cost.algorithm] = list(loads), seconds
        links, seconds = self._seconds[cost.algorithm]
        return dict(zip(links, (seconds @ (cost.port, cost.nic)).tolist(), strict=True))

    def rows(self, size: float, *, messages: bool) -> list[CollectiveTime]:
        """Return the rows of a size. The fastest of the library's rows is marked as chosen."""
        found, begun = [], max(self.late.values(), default=0.0)
        for cost in self.costs(size):
            wires = self.wires(cost)
            seconds = begun + cost.latency + max(wires.values(), default=0.0)
            found.append(self._row(size, cost.algorithm, cost.protocol, seconds, wires))
            if seconds == min([seconds, *(row.seconds for row in found)]):
                self.cables = {
                    link_name(link): wire / seconds
                    for link, wire in wires.items()
                    if link[0] == "edge"
                }
        best = min(found, key=lambda row: row.seconds)
        found = [replace(row, chosen=row is best) for row in found]
        names = dict.fromkeys(row.algorithm for row in found) if messages else ()
        played = ((name, _rounds(name, self.kind, len(self.places))) for name in names)
        return [*found, *(self._played(size, name, rounds) for name, rounds in played if rounds)]

    def _played(self, size: float, name: str, schedule: CollectiveSchedule) -> CollectiveTime:
        done = play_collective(schedule, size, self.topology, gpus=self.places, late=self.late)
        return self._row(size, name, MESSAGES, done.seconds, {})

    def _row(
        self, size: float, algorithm: str, protocol: str, seconds: float, wires: dict[Link, float]
    ) -> CollectiveTime:
        each = len(self.places) if self.kind in _DIVIDED else 1
        return CollectiveTime(
            size=size,
            count=int(size / _ELEMENT / each),
            algorithm=algorithm,
            protocol=protocol,
            seconds=seconds,
            algbw=size / seconds,
            busbw=self.bus(size, seconds),
            links={name: busy / seconds for name, busy in _busiest(wires)},
        )


def _busiest(wires: Mapping[Link, float]) -> Iterator[tuple[str, float]]:
    """Yield the name of the busiest link of each kind, with the number of further links that are as
    busy, and the link's seconds."""
    ordered = sorted(wires, key=lambda link: -wires[link])
    for first, *others in grouped((link[0], link) for link in ordered).values():
        alike = sum(wires[link] > (1.0 - _ALIKE) * wires[first] for link in others)
        more = f" and {alike:,} more" if alike else ""
        if wires[first]:
            yield f"{link_name(first)}{more}", wires[first]
