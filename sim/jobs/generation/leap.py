"""Many decode steps at once: the steps between two changes of a batch, in closed form.

In each step attention reads all caches, which grow by one token a sequence. So step j = 0, 1, ...
takes t_j = max(first + j more, floor) + extra seconds (`Pace`). Above the floor, its sum over j is
an arithmetic series.
"""

from math import ceil, sqrt

from sim.config.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """The seconds of consecutive steps. The device takes `first` for the first step and `more` more
    for each further step, but at least `floor`; `extra` comes on top of every step."""

    first: float
    more: float
    floor: float = 0.0
    extra: float = 0.0

    def slower(self, factor: float) -> "Pace":
        """The pace of steps that take `factor` times as long."""
        return Pace(*(factor * term for term in (self.first, self.more, self.floor, self.extra)))

    def seconds(self, steps: int) -> float:
        """Seconds of the first `steps` steps.

        >>> Pace(first=2.0, more=1.0, floor=3.0, extra=0.5).seconds(3)
        11.5
        """
        below = min(self._below, steps)
        above = steps - below
        growth = self.more * above * (2 * below + above - 1) / 2
        return steps * self.extra + below * self.floor + above * self.first + growth

    def steps(self, seconds: float) -> int:
        """The number of steps that have ended after `seconds` seconds.

        >>> pace = Pace(first=2.0, more=1.0, floor=3.0, extra=0.5)
        >>> [pace.steps(seconds) for seconds in (3.4, 3.5, 7.0, 11.4, 11.5)]
        [0, 1, 2, 2, 3]
        """
        each = self.floor + self.extra
        below = self._below
        if seconds < each * min(below, 1 << 62):
            return self._exact(int(seconds / each), seconds)
        rest = seconds - each * below
        a, b = self.first + self.more * below + self.extra, self.more
        linear = a - b / 2
        if b * rest < 1e-12 * a * a:
            return self._exact(below + int(rest / a), seconds)
        root = (sqrt(linear * linear + 2 * b * rest) - linear) / b
        return self._exact(below + int(root), seconds)

    def _exact(self, steps: int, seconds: float) -> int:
        """Correct a number of steps that is too large or too small because of rounding."""
        while steps > 0 and self.seconds(steps) > seconds:
            steps -= 1
        while self.seconds(steps + 1) <= seconds:
            steps += 1
        return steps

    @property
    def _below(self) -> int:
        """The number of first steps for which the device takes less than the floor."""
        if self.first >= self.floor:
            return 0
        return ceil((self.floor - self.first) / self.more) if self.more > 0 else 1 << 62
