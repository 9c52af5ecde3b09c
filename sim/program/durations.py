"""The law of launched work: how long it takes where a host launches what a device executes.

Work has three numbers: `device`, the seconds of its kernels; `host`, the seconds in which the host
launches them; `lead`, the seconds from the first launch to the end of the last kernel on an idle
device: max over i of (launches up to i) + (kernels from i on). With the device ready at r and the
host free at h it ends at max(r + device, h + lead) and leaves the host free at h + host. Work in a
row is work again, exactly, so a pass of twelve layers is as cheap to play as one kernel.
"""

from typing import NamedTuple


class Duration(NamedTuple):
    """Seconds on the device, of the host, and from first launch to last end.

    >>> kernel = Duration(device=3.0, host=1.0, lead=4.0)
    >>> kernel.end(ready=5.0, host_free=0.0), kernel.end(ready=0.0, host_free=5.0)
    (8.0, 9.0)
    """

    device: float = 0.0
    host: float = 0.0
    lead: float = 0.0

    def end(self, ready: float, host_free: float) -> float:
        """When the last kernel ends."""
        return max(ready + self.device, host_free + self.lead)

    def launched(self, host_free: float) -> float:
        """When the host is free again."""
        return host_free + self.host

    def then(self, behind: "Duration") -> "Duration":
        """This work and more behind it.

        >>> Duration(1.0, 2.0, 3.0).then(Duration(4.0, 1.0, 5.0))
        Duration(device=5.0, host=3.0, lead=7.0)
        """
        return Duration(
            self.device + behind.device,
            self.host + behind.host,
            max(self.lead + behind.device, self.host + behind.lead),
        )

    def repeated(self, times: int) -> "Duration":
        """So many in a row: lead + (n - 1) max(device, host).

        >>> kernel = Duration(1.0, 2.0, 3.0)
        >>> kernel.repeated(3) == kernel.then(kernel).then(kernel)
        True
        """
        if times == 0:
            return Duration()
        more = (times - 1) * max(self.device, self.host)
        return Duration(times * self.device, times * self.host, self.lead + more)

    def slowed(self, factor: float) -> "Duration":
        """On a device whose kernels take `factor` times as long."""
        device = self.device * factor
        lead = max(self.lead, self.device, self.host) + device - self.device
        return Duration(device, self.host, lead)

    def beside(self, seconds: float, interference: float = 0.0) -> "Duration":
        """Slowed by a collective of so many seconds that starts with it, and ending not before it.

        >>> Duration(3.0, 0.0, 3.0).beside(1.0, 0.4).device
        3.4
        >>> Duration(3.0, 0.0, 3.0).beside(9.0, 0.4).device
        9.0
        """
        slow = self.disturbed(seconds, interference)
        device = max(slow.device, seconds)
        return Duration(device, self.host, max(slow.lead, seconds))

    def disturbed(self, seconds: float, interference: float) -> "Duration":
        """At 1 - `interference` of its pace while a collective runs beside it for so long."""
        lost = min(interference * seconds, self.device * interference / (1.0 - interference))
        return Duration(self.device + lost, self.host, self.lead + lost)
