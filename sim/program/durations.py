"""The law of launched work: how long work takes if a host launches the kernels of a device.

Work has four numbers:

- `device`: the seconds of its kernels;
- `host`: the seconds in which the host launches them;
- `lead`: the seconds from the first launch to the end of the last kernel on an idle device, which
  are the max over i of (launches up to i) + (kernels from i on);
- `wait`: the seconds from the device being ready to the host being free, if the host reads a result
  of the device and so waits for it.

With the device ready at r and the host free at h, the work ends at max(r + device, h + lead) and
leaves the host free at max(r + wait, h + host). This is a matrix of (max, +) on (r, h). The matrix
of several works in a row is exactly the product of their matrices, so a pass of twelve layers is as
cheap to simulate as one kernel (Baccelli et al. 1992, Synchronization and Linearity, 1.2).
"""

from math import inf
from typing import NamedTuple


class Duration(NamedTuple):
    """The four numbers of work (s); `wait` is -inf if the host does not wait for the device.

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
        """Return when the last kernel ends (s)."""
        return max(ready + self.device, host_free + self.lead)

    def launched(self, ready: float, host_free: float) -> float:
        """Return when the host is free again (s)."""
        return max(ready + self.wait, host_free + self.host)

    def then(self, behind: "Duration") -> "Duration":
        """Return the duration of this work followed by the work `behind` it.

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
        """Return the duration of this work `times` times in a row. Its lead is
        lead + (times - 1) max(device, host); if the host waits, halves are composed.

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
        """Return the duration on a device whose kernels take `factor` times as long."""
        device = self.device * factor
        lead = max(self.lead, self.device, self.host) + device - self.device
        return Duration(device, self.host, lead, self.wait + device - self.device)

    def beside(self, seconds: float, interference: float = 0.0) -> "Duration":
        """Return the duration beside a collective of `seconds` that starts with the work and slows
        it down. The work ends no earlier than the collective.

        >>> Duration(3.0, 0.0, 3.0).beside(1.0, 0.4).device
        3.4
        >>> Duration(3.0, 0.0, 3.0).beside(9.0, 0.4).device
        9.0
        """
        slow = self.disturbed(seconds, interference)
        device = max(slow.device, seconds)
        return Duration(device, self.host, max(slow.lead, seconds), slow.wait)

    def disturbed(self, seconds: float, interference: float) -> "Duration":
        """Return the duration if a collective runs beside the work for `seconds`, during which the
        kernels run at 1 - `interference` of their pace."""
        lost = min(interference * seconds, self.device * interference / (1.0 - interference))
        return Duration(self.device + lost, self.host, self.lead + lost, self.wait + lost)


READ = Duration(wait=0.0)
"""The host waits until the device has finished all launched kernels."""
