"""When pieces of the weights are exchanged, and when what comes of it is merged."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """Fragment p of P leaves after every step t with t = (p + 1) H / P modulo the `period` H, and
    is merged `overlap` steps later (Douillard et al. 2025, arXiv 2501.18512).

    P divides H, so that at most one leaves at a time; `overlap` is below H, so that none leaves
    before it has come back.

    >>> calendar = Calendar(period=4, fragments=2, overlap=1)
    >>> [(calendar.leaving(t), calendar.arriving(t)) for t in range(1, 6)]
    [(None, None), (0, None), (None, 0), (1, None), (None, 1)]
    """

    period: int
    fragments: int = 1
    overlap: int = 0

    @property
    def stretch(self) -> int:
        """Steps from one exchange to the next."""
        return self.period // self.fragments

    def leaving(self, steps: int) -> int | None:
        """The fragment that leaves when a worker has done so many steps."""
        number, rest = divmod(steps, self.stretch)
        return None if rest or number < 1 else (number - 1) % self.fragments

    def arriving(self, steps: int) -> int | None:
        """The fragment that is merged then."""
        return self.leaving(steps - self.overlap)
