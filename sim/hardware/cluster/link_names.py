"""Names of links: "node3.nic0" means both directions, "node3.nic0.up" only one direction."""

import re
from collections.abc import Iterator, Sequence

from sim.hardware.cluster.network import Link

# Names by kind of link; each link of `_BOTH_WAYS` carries both directions together.
_NAMES = {
    "port": "gpu{}.port",
    "nic": "node{}.nic{}",
    "pcie": "node{}.pcie{}",
    "nvme": "node{}.nvme",
    "client": "node{}.storage",
    "storage": "storage{}",
    "pod": "pod{}",
    "leaf": "leaf{}.{}",
}
_BOTH_WAYS = {
    "memory": "node{}.memory",
    "cores": "node{}.cores",
    "workers": "gpu{}.workers",
    "operations": "storage{}.operations",
}


def _pattern(name: str, ways: str) -> re.Pattern[str]:
    return re.compile(re.escape(name).replace(r"\{\}", r"(\d+)") + ways)


_PATTERNS = {
    **{kind: _pattern(name, r"(?:\.(up|down))?") for kind, name in _NAMES.items()},
    **{kind: _pattern(name, "") for kind, name in _BOTH_WAYS.items()},
    "edge": re.compile(r"edge (\d+)(-|>)(\d+)"),
    "nvlink": re.compile(r"nvlink (\d+)(-|>)(\d+)"),
}
FORMS = "'node3.nic0', 'gpu5.port', 'pod0', 'edge 0-1' or 'nvlink 0-1'"


def link_name(link: Link) -> str:
    """The name of one direction, as `links_named` reads it.

    >>> link_name(("nic-up", 3, 0)), link_name(("edge", 0, 1))
    ('node3.nic0.up', 'edge 0>1')
    """
    kind, *places = link
    if kind in ("edge", "nvlink"):
        return f"{kind} {places[0]}>{places[1]}"
    if kind in _BOTH_WAYS:
        return _BOTH_WAYS[kind].format(*places)
    name, _, way = kind.partition("-")
    if name not in _NAMES:
        raise ValueError(f"{link!r} is not a link")
    return f"{_NAMES[name].format(*places)}.{way}"


def links_named(text: str) -> tuple[Link, ...]:
    """The links (one direction each) that a text names, even if no topology has them; () if none.

    >>> links_named("node3.nic0")
    (('nic-up', 3, 0), ('nic-down', 3, 0))
    >>> links_named("edge 1>0")
    (('edge', 1, 0),)
    """
    for kind, pattern in _PATTERNS.items():
        if match := pattern.fullmatch(text.strip()):
            return tuple(_directions(kind, match.groups()))
    return ()


def _directions(kind: str, parts: Sequence[str | None]) -> Iterator[Link]:
    if kind in ("edge", "nvlink"):
        a, arrow, b = int(parts[0] or 0), parts[1], int(parts[2] or 0)
        yield (kind, a, b)
        if arrow == "-":
            yield (kind, b, a)
        return
    if kind in _BOTH_WAYS:
        yield (kind, int(parts[0] or 0))
        return
    numbers = [int(part) for part in parts[:-1] if part is not None]
    for direction in (parts[-1],) if parts[-1] else ("up", "down"):
        if len(numbers) == 2:
            yield (f"{kind}-{direction}", numbers[0], numbers[1])
        else:
            yield (f"{kind}-{direction}", numbers[0])
