"""Time against bytes of one kind of memory-bound kernel, between measured sizes."""

import math
from bisect import bisect_left
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Curve:
    """Measured (bytes, seconds), sizes rising.

    Between two sizes it is linear in the logarithms of both. Below the smallest size the time
    stays constant (a kernel's floor), above the largest the bandwidth does.
    """

    points: tuple[tuple[float, float], ...]

    def __call__(self, size: float) -> float:
        """Seconds of a kernel that moves so many bytes.

        >>> curve = Curve(((1e3, 1e-6), (1e5, 1e-4)))
        >>> round(curve(1e4), 9), curve(10.0), round(curve(1e6), 9)
        (1e-05, 1e-06, 0.001)
        """
        (first, floor), (last, longest) = self.points[0], self.points[-1]
        if size <= first:
            return floor
        if size >= last:
            return longest * size / last
        right = bisect_left([measured for measured, _ in self.points], size)
        (b0, t0), (b1, t1) = self.points[right - 1], self.points[right]
        return t0 * math.exp(math.log(t1 / t0) * math.log(size / b0) / math.log(b1 / b0))

    @property
    def range(self) -> tuple[float, float]:
        return self.points[0][0], self.points[-1][0]
