"""A request for an answer, and the answer."""

from collections.abc import Hashable
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Request:
    """A prompt of so many tokens and the tokens of its answer, which the scenario knows and the
    server learns when they end. Requests with equal `prefix` have one prompt, which the server
    computes once while any of them runs. An answer that `continues` has so many tokens already,
    and needs a cache of them."""

    prompt: int
    answer: int
    prefix: Hashable = None
    continues: int = 0
    cap: int = 0


@dataclass(slots=True, eq=False)
class Answer:
    """What became of a request: the tokens that are written for it now, without those that it
    `continues`; `finished` unless aborted. Moments (s): submitted, admitted first, first token,
    end; None where it never came to that. `preempted` counts how often it lost its cache.
    `versions` are the tokens by version of the weights."""

    request: Request
    submitted: float
    tokens: int = 0
    finished: bool = False
    admitted: float | None = None
    first: float | None = None
    ended: float | None = None
    preempted: int = 0
    versions: dict[int, int] = field(default_factory=dict)

    @property
    def wait(self) -> float | None:
        """Seconds to the first token (TTFT)."""
        return None if self.first is None else self.first - self.submitted

    @property
    def pace(self) -> float | None:
        """Seconds of a token behind the first (TPOT)."""
        if self.ended is None or self.first is None or self.tokens < 2:
            return None
        return (self.ended - self.first) / (self.tokens - 1)
