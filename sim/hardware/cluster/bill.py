"""What a network is built of: switches, cables and transceivers, counted from its shape."""

from sim.config.dataclass import dataclass
from sim.hardware.cluster.price import Price


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """`switches` by tier, leaves first; `links` are cables from NICs to switches (or from node to
    node), `trunks` cables between switches. Each end of a cable has a transceiver."""

    switches: tuple[int, ...] = ()
    links: int = 0
    trunks: int = 0

    @property
    def cables(self) -> int:
        """All cables."""
        return self.links + self.trunks

    @property
    def transceivers(self) -> int:
        """Two a cable."""
        return 2 * self.cables

    def dollars(self, price: Price | None) -> float | None:
        """What it costs; None where a price is unknown."""
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
