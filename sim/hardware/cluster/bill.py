"""The switches and cables of a network, and what they cost.

Nothing else needs this file: without it, networks have no bill.
"""

from collections.abc import Sequence
from itertools import islice
from math import ceil, inf

from sim.config.dataclass import dataclass
from sim.config.units import DAY, HOUR
from sim.hardware.cluster.price import Price


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """The parts of a network: `switches` by tier, leaves first; `links`, the cables from NICs to
    switches (or from node to node); and `trunks`, the cables between switches."""

    switches: tuple[int, ...] = ()
    links: int = 0
    trunks: int = 0

    @property
    def cables(self) -> int:
        """All cables."""
        return self.links + self.trunks

    @property
    def transceivers(self) -> int:
        """Two transceivers for each cable, one at each end."""
        return 2 * self.cables

    def hourly(self, price: Price | None) -> float | None:
        """Dollars an hour for all parts until they are written off; None where a price is unknown.

        >>> round(Bill(links=1).hourly(Price(hour=1.0, cable=8766.0, transceiver=0.0)), 9)
        0.25
        """
        cost = self.dollars(price)
        if price is None or cost is None:
            return None
        return cost / (price.network_years * 365.25 * DAY / HOUR)

    def dollars(self, price: Price | None) -> float | None:
        """Dollars for all parts; None where a price is unknown."""
        parts = (
            (sum(self.switches), price and price.switch),
            (self.cables, price and price.cable),
            (self.transceivers, price and price.transceiver),
        )
        total = 0.0
        for count, each in parts:
            if each is None and count:
                return None
            total += count * (each or 0.0)
        return total


def of_tree(
    nodes: int,
    leaf: int,
    nics: int,
    planes: int,
    radix: int,
    oversubscription: float,
    *,
    pod: int,
    rails: bool,
) -> Bill:
    """The bill of leaves with `leaf` nodes each, and of the tiers above, in separate `planes`.

    In the highest tier all `radix` ports of a switch lead down, each to a subtree. Other tiers
    have as many cables up as down. Only the highest tier of a `pod` of nodes (of a leaf, if `pod`
    is 0) has 1/`oversubscription` as many up. With `rails` the NICs of a node lead to different
    leaves.

    >>> of_tree(512, 4, 8, 1, 64, 4.0, pod=32, rails=False)
    Bill(switches=(128, 80, 16), links=4096, trunks=5120)
    """
    over = oversubscription if pod < nodes else 1.0
    size = pod if 0 < pod < nodes else leaf
    sizes = [min(size, nodes - first) for first in range(0, nodes, size)]
    cables, often = (leaf, nics // planes) if rails else (leaf * nics, 1)
    plane = _joined(often * [[cables] * -(-pod_nodes // leaf) for pod_nodes in sizes], radix, over)
    switches = tuple(planes * count for count in plane.switches)
    return Bill(switches=switches, links=nodes * nics, trunks=planes * plane.trunks)


def _joined(pods: Sequence[Sequence[int]], radix: int, oversubscription: float) -> Bill:
    """The bill of leaves, given as their numbers of cables down by pod, and of what joins them."""
    half = radix // 2
    switches, trunks = [sum(map(len, pods))], list[int]()

    def joined(groups: Sequence[Sequence[int]], over: float = 1.0) -> list[int]:
        """Join each group of subtrees by switches; return the numbers of cables up."""
        down = [sum(group) for group in groups]
        up = [ceil(cables / over) for cables in down]
        ports = zip(down, up, strict=True)
        switches.append(sum(-(-sum(each) // radix) for each in ports))
        trunks.append(sum(down))
        return up

    while max(map(len, pods)) > half:
        up = iter(joined([part for pod in pods for part in _parts(pod, half)]))
        pods = [list(islice(up, len(_parts(pod, half)))) for pod in pods]
    if max(map(len, pods)) > 1:
        trees = joined(pods, oversubscription)
    else:
        trees = [max(round(leaf / oversubscription), 1) for (leaf,) in pods]
    while len(trees) > radix:
        trees = joined(_parts(trees, half))
    if len(trees) > 1:
        joined([trees], inf)
    return Bill(switches=tuple(switches), trunks=sum(trunks))


def _parts(trees: Sequence[int], most: int) -> list[Sequence[int]]:
    """Split a list into parts of `most`; the last part may be shorter."""
    return [trees[first : first + most] for first in range(0, len(trees), most)]
