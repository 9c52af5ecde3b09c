"""The law of launched work: how long it takes where a host launches what a device executes.

Work has four numbers: `device`, the seconds of its kernels; `host`, the seconds in which the host
launches them; `lead`, the seconds from the first launch to the end of the last kernel on an idle
device: max over i of (launches up to i) + (kernels from i on); and where the host waits for the
device on the way (it reads a result), `wait`, the seconds from the device being ready to the host
being free. With the device ready at r and the host free at h, work ends at
max(r + device, h + lead) and leaves the host free at max(r + wait, h + host): a matrix of (max, +)
on (r, h). Work in a row is their product, exactly, so a pass of twelve layers is as cheap to play
as one kernel (Baccelli et al. 1992, Synchronization and Linearity, 1.2).
"""

from math import inf
from typing import NamedTuple


class Duration(NamedTuple):
    """Seconds on the device, of the host, from first launch to last end, and of waiting for it.

    >>> kernel = Duration(device=3.0, host=1.0, lead=4.0)
    >>> kernel.end(ready=5.0, host_free=0.0), kernel.end(ready=0.0, host_free=5.0)
    (8.0, 9.0)
    >>> kernel.launched(5.0, 0.0), kernel.then(READ).launched(5.0, 0.0)
    (1.0, 8.0)
    """

    device: float = 0.0
    host: float = 0.0
    lead: float = 0.0
    wait: float = -inf

    @property
    def waits(self) -> bool:
        """Whether the host waits for the device."""
        return self.wait > -inf

    def end(self, ready: float, host_free: float) -> float:
        """When the last kernel ends."""
        return max(ready + self.device, host_free + self.lead)

    def launched(self, ready: float, host_free: float) -> float:
        """When the host is free again."""
        return max(ready + self.wait, host_free + self.host)

    def then(self, behind: "Duration") -> "Duration":
        """This work and more behind it.

        >>> Duration(1.0, 2.0, 3.0).then(Duration(4.0, 1.0, 5.0))
        Duration(device=5.0, host=3.0, lead=7.0, wait=-inf)
        >>> Duration(1.0, 2.0, 3.0).then(READ).then(Duration(4.0, 1.0, 5.0))
        Duration(device=6.0, host=4.0, lead=8.0, wait=2.0)
        """
        return Duration(
            max(self.device + behind.device, self.wait + behind.lead),
            max(self.host + behind.host, self.lead + behind.wait),
            max(self.lead + behind.device, self.host + behind.lead),
            max(self.wait + behind.host, self.device + behind.wait),
        )

    def repeated(self, times: int) -> "Duration":
        """So many in a row: lead + (n - 1) max(device, host), or by halves where the host waits.

        >>> kernel = Duration(1.0, 2.0, 3.0)
        >>> kernel.repeated(3) == kernel.then(kernel).then(kernel)
        True
        """
        if times == 0:
            return Duration()
        if self.waits:
            half = self.repeated(times // 2)
            return half.then(half).then(self if times % 2 else Duration())
        more = (times - 1) * max(self.device, self.host)
        return Duration(times * self.device, times * self.host, self.lead + more)

    def slowed(self, factor: float) -> "Duration":
        """On a device whose kernels take `factor` times as long."""
        device = self.device * factor
        lead = max(self.lead, self.device, self.host) + device - self.device
        return Duration(device, self.host, lead, self.wait + device - self.device)

    def beside(self, seconds: float, interference: float = 0.0) -> "Duration":
        """Slowed by a collective of so many seconds that starts with it, and ending not before it.

        >>> Duration(3.0, 0.0, 3.0).beside(1.0, 0.4).device
        3.4
        >>> Duration(3.0, 0.0, 3.0).beside(9.0, 0.4).device
        9.0
        """
        slow = self.disturbed(seconds, interference)
        device = max(slow.device, seconds)
        return Duration(device, self.host, max(slow.lead, seconds), slow.wait)

    def disturbed(self, seconds: float, interference: float) -> "Duration":
        """At 1 - `interference` of its pace while a collective runs beside it for so long."""
        lost = min(interference * seconds, self.device * interference / (1.0 - interference))
        return Duration(self.device + lost, self.host, self.lead + lost, self.wait + lost)


READ = Duration(wait=0.0)
"""The host waits until the device has done all that it was given."""
