"""How much every link carries in a run, and for what share of it that keeps it busy."""

from dataclasses import dataclass

from sim.engine.record import Record, amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLoad:
    """`bytes` that the link of that name carries, and others like it; `busy` is the share of the
    time in which they take its whole `capacity` (B/s)."""

    name: str
    capacity: float
    bytes: float
    busy: float

    @property
    def kind(self) -> str:
        """The kind of link, whatever its direction: port, nic, pod, edge, nvlink, pcie."""
        return self.name.partition(" ")[0].partition("-")[0]


def link_loads(record: Record) -> list[LinkLoad]:
    """Classes of links that a run loads, the busiest first."""
    program = record.program()
    links, (_, traffic) = program.links, amounts(record.tracks, program)
    carried = {link: sum(size for *_, size in transfers) for link, transfers in traffic.items()}
    loads = [
        LinkLoad(
            name=links[link].name,
            capacity=links[link].capacity,
            bytes=size,
            busy=size / (links[link].capacity * record.end),
        )
        for link, size in carried.items()
        if size > 0.0
    ]
    return sorted(loads, key=lambda load: (-load.busy, load.name))
