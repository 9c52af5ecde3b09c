"""A collective by size, algorithm and protocol, as nccl-tests would print it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, field, replace
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sim.collectives.interconnect import CallCost, bus_factor
from sim.collectives.schedule import CollectiveKind, CollectiveSchedule, algorithms, kind_named
from sim.collectives.selection import check
from sim.config import gate, limit
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.units import quantity_of
from sim.engine.group_links import group_loads, shape_of
from sim.engine.machine import Machine
from sim.engine.messages import play_collective, trace_collective
from sim.engine.timeline import Timeline
from sim.hardware.cluster.link_names import link_name, links_named
from sim.hardware.cluster.topology import Link, Topology
from sim.kind import cluster_scenario
from sim.program.calls import AlgorithmRule
from sim.results.answer import Answer, Inputs
from sim.results.formatting import several
from sim.scenario.settings import Settings, settings_of
from sim.scenario.setup import load_topology, machine
from sim.variability.laws import generator

if TYPE_CHECKING:
    import pandas as pd

_ELEMENT = 4  # bytes of nccl-tests' float
# Those whose count is that of one rank.
_DIVIDED = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
_ALIKE = 1e-9
_OF_GPU = 1.2e-5  # s on one core, for each size; three times as long before the first
_MOST_SIZES = 64  # each twice the one before
_HUGE = 2.0**50  # bytes: latency is nothing beside them
MESSAGES = "messages"
"""The protocol of rows that are played message by message, without the library's software: one
ring or tree through the ranks in their order, where NCCL has one for each of its channels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveTime:
    """A row: `size` bytes, `count` elements of a rank, `seconds`; `chosen` by the library; `links`
    are the busiest of each kind, with the share of the time that they carry bytes."""

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
    """All rows of a collective among GPUs of a topology; `bound` is the bus bandwidth (B/s) that
    its links would allow the best of the algorithms without any latency.

    Rank r is GPU `places[r]`. Ranks that are `late` come so many seconds after the others: a
    library's rows begin with the last of them, messages as soon as those that they wait for have
    come; times count from the first rank's coming.
    """

    view = "sim.interface.views.collective"
    picture = "sim.interface.plots.collective:times"
    unwritten = ("topology", "places", "cables")
    derived: ClassVar[Mapping[str, str]] = {"gpus": "gpus"}

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
        """The library's choice for the largest size."""
        return [row for row in self.rows if row.chosen][-1]

    @property
    def busy(self) -> dict[str, float]:
        """Of that row, the share of its time for which the busiest link of each kind is busy, and
        so every one of `cables`, those between nodes or routers."""
        shares: dict[str, float] = {}
        for name, share in self.choice.links.items():
            kind = str(links_named(name.partition(" and ")[0])[0][0]).partition("-")[0]
            shares[kind] = max(shares.get(kind, 0.0), share)
        return {**shares, **self.cables}

    def to_frame(self) -> "pd.DataFrame":
        """One row a size, algorithm and protocol."""
        import pandas as pd

        return pd.DataFrame([asdict(row) for row in self.rows])

    def trace(self) -> Timeline:
        """Every message of the first algorithm with rounds, of the largest size. Raises
        `InputError` where none has any."""
        for row in self.rows:
            if schedule := _rounds(row.algorithm, self.kind, self.gpus):
                return trace_collective(
                    schedule, self.rows[-1].size, self.topology, gpus=self.places, late=self.late
                )
        raise InputError(
            "--trace", "nothing here is made of messages", "name one: --algorithm ring"
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
    """Times of a collective of `sizes` as nccl-tests counts them: bytes, or texts with their unit
    such as "256 MiB", one or several, or all from one to another, doubling: "1KiB..8GiB".

    `algorithm`: of these instead of those that the library considers. `slow` divides the bandwidth
    of links by factors, of which others' `traffic` takes so much ("100 Gb/s"): both are
    [[straggler]] of a scenario, of whose `settings` those hold here that concern a cluster
    ("network.bandwidth=100 Gb/s").
    `late` are ranks with the seconds after which they come. `placement` names each rank's GPU, or
    is "random" ("random:7" with another seed): some of the topology's GPUs in any order. A library
    finds its rings whatever the order is; messages follow it. With `messages` algorithms are also
    played message by message at their links' rates. Raises `InputError`.

    >>> times = collective("all_reduce", 2**30, "dgx-h100-ndr", gpus=8)
    >>> [row.algorithm for row in times.rows if row.chosen]
    ['nvls']
    """
    changes = settings_of(settings)
    sick = [{"link": link, "factor": own} for link, own in (slow or {}).items()]
    sick += [{"link": link, "traffic": own} for link, own in (traffic or {}).items()]
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
    """The cluster with what is slow on it, and the GPU of each rank. Raises `InputError` for ranks
    that compute slowly, and for GPUs that are not there."""
    scenario = cluster_scenario(topology, changes)
    for straggler in scenario.straggler:
        if straggler.link is None:
            fault = "ranks that compute slowly, but a collective alone computes nothing"
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
        raise InputError("--placement", f"{placement!r} is none", remedy)
    if gpus > whole:
        fault = f"{gpus:,} of {whole:,} GPUs"
        raise InputError("--placement", fault, "set topology.gpus to more")
    limit.refuse_large("--placement", f"{whole:,} GPUs in any order", 8 * whole)
    drawn = generator(int(seed or 0), "placement").permutation(whole)
    return [int(place) for place in drawn[:gpus]]


def _sizes(given: float | str | Iterable[float | str]) -> Iterator[float]:
    """Bytes of each size. Raises `InputError`."""
    if isinstance(given, str) and ".." in given:
        yield from _span(given)
    elif isinstance(given, str | float | int):
        size = quantity_of("size", given, "B") if isinstance(given, str) else float(given)
        if fault := gate.fault_of(size) or ("is less than a byte" if size < 1.0 else ""):
            raise InputError("size", f"{given} {fault}", "write it like 1 MiB")
        yield size
    else:
        for text in given:
            yield from _sizes(text)


def _span(text: str) -> Iterator[float]:
    low, high = (next(_sizes(end)) for end in text.split("..", 1))
    if low > high:
        raise InputError("--sizes", f"{text!r} ends before it begins", "write the smaller first")
    yield from (low * 2**i for i in range(_MOST_SIZES) if low * 2**i <= high)


def _lateness(late: Mapping[int, float | str], ranks: int) -> dict[int, float]:
    """Seconds by rank. Raises `InputError`."""
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
    """An algorithm's messages, where it is made of rounds."""
    own = getattr(algorithms().get(algorithm), kind, None)
    found: CollectiveSchedule | None = own and own(ranks)
    return found


class _Bench:
    """One collective on one machine."""

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
        self.cables = dict[str, float]()  # of what was chosen last, with their shares of the time
        self.shape = shape_of(places, self.topology)
        # By algorithm its links, and their seconds for a byte of ports and of NICs [links, 2].
        self._seconds: dict[str, tuple[list[Link], NDArray[np.float64]]] = {}

    def costs(self, size: float) -> list[CallCost]:
        """Costs of the algorithms that the library considers, or of the requested ones. Raises
        `InputError`."""
        try:
            return self.machine.candidates(self.kind, size, self.shape, self.algorithm)
        except ValueError as error:
            raise InputError.of("collective", error) from None

    def bus(self, size: float, seconds: float) -> float:
        return bus_factor(self.kind, len(self.places)) * size / seconds

    def wires(self, cost: CallCost) -> dict[Link, float]:
        """Seconds of each link at its full rate."""
        if cost.algorithm not in self._seconds:
            loads = group_loads(self.places, self.topology, self.shape, self.kind, cost.algorithm)
            rates = np.array([self.topology.capacity(link) for link in loads])
            seconds = np.array([*loads.values()]).reshape(-1, 2) / rates[:, None]
            self._seconds[cost.algorithm] = list(loads), seconds
        links, seconds = self._seconds[cost.algorithm]
        return dict(zip(links, (seconds @ (cost.port, cost.nic)).tolist(), strict=True))

    def rows(self, size: float, *, messages: bool) -> list[CollectiveTime]:
        """The rows of a size, the quickest of the library's marked."""
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
        return [*found, *(self._played(size, name, own) for name, own in played if own)]

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
    """Of each kind of link the busiest, with how many are as busy."""
    kinds: dict[str, list[Link]] = {}
    for link in sorted(wires, key=lambda link: -wires[link]):
        kinds.setdefault(str(link[0]), []).append(link)
    for first, *others in kinds.values():
        alike = sum(wires[link] > (1.0 - _ALIKE) * wires[first] for link in others)
        more = f" and {alike:,} more" if alike else ""
        if wires[first]:
            yield f"{link_name(first)}{more}", wires[first]
