"""How many bytes every link carries in a run, and for what share of the time it is busy."""

from collections.abc import Mapping

from sim.config.dataclass import dataclass
from sim.engine.folded import LinkClass
from sim.engine.record import Record
from sim.engine.spans import amounts
from sim.program.causes import Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLoad:
    """The load of a link; all links of its class have equal loads. `bytes` leave out the bytes that
    protocols add. `busy` is the share of the time for which all bytes, with those of protocols,
    would take the link's whole `capacity` (B/s)."""

    name: str
    capacity: float
    bytes: float
    busy: float

    @property
    def kind(self) -> str:
        """The kind of link without its direction: port, nic, pod, edge, nvlink, pcie."""
        return self.name.partition(" ")[0].partition("-")[0]


def link_loads(record: Record) -> list[LinkLoad]:
    """The loads of all classes of links that a run uses, the busiest first."""
    carried = _carried(record) if record.carried is None else record.carried()
    loads = [
        LinkLoad(
            name=link.name,
            capacity=link.capacity,
            bytes=sent,
            busy=busy / (link.capacity * record.end),
        )
        for link, (busy, sent) in carried.items()
        if busy > 0.0
    ]
    return sorted(loads, key=lambda load: (-load.busy, load.name))


def _carried(record: Record) -> Mapping[LinkClass, tuple[float, float]]:
    """The bytes that all steps put on each class of links: first with the bytes that protocols
    add, then without them."""
    program = record.program()
    _, traffic = amounts(record.tracks, program)
    return {
        program.links[link]: (sum(busy for _, _, busy, _ in all_), sum(sent for *_, sent in all_))
        for link, all_ in traffic.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowest:
    """The kind of link that limits traffic of a cause. On such a link this traffic takes `seconds`
    of the step, and all traffic together takes `busy` seconds."""

    kind: str
    seconds: float
    busy: float


def narrowest(record: Record, cause: Cause, *, waits: bool) -> Narrowest | None:
    """The link that limits traffic of a cause, or None without such traffic. It is the link on
    which this traffic takes longest. If the step `waits` for the traffic, it is the link on which
    all traffic together takes longest."""
    program = record.program()
    sizes: dict[int, float] = {}
    for transfer in program.transfers:
        for link, load in transfer.traffic.loads if transfer.cause == cause else ():
            sizes[link] = sizes.get(link, 0.0) + transfer.traffic.size * load
    if not sizes:
        return None
    links, (_, traffic) = program.links, amounts(record.tracks, program)
    busy = {
        link: sum(size for _, _, size, _ in traffic[link]) / links[link].capacity for link in sizes
    }
    alone = {link: size / links[link].capacity for link, size in sizes.items()}
    link = max(sizes, key=(busy if waits else alone).__getitem__)
    kind = links[link].name.partition(" ")[0].partition("-")[0]
    return Narrowest(kind=kind, seconds=alone[link], busy=busy[link])
