"""A request for an answer, and the answer."""

from collections.abc import Hashable
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Request:
    """A `prompt` and an `answer`, in tokens. The server learns the length of the answer only at its
    end; it knows the longest possible length `cap`. Requests with equal `prefix` share a prompt,
    which the server computes once while any of these requests runs. An answer already has
    `continues` tokens, for which the server needs a cache."""

    prompt: int
    answer: int
    prefix: Hashable = None
    continues: int = 0
    cap: int = 0


@dataclass(slots=True, eq=False)
class Answer:
    """The answer to a request: its written `tokens`, without those that it `continues`; `finished`
    says that it was not aborted. `submitted`, `admitted` (for the first time), `first` (token) and
    `ended` are moments (s), None if they did not come. `preempted` counts how often the sequence
    lost its cache. `versions` are the tokens by version of the weights."""

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
        """Seconds of each token after the first (TPOT); None for fewer than two tokens."""
        if self.ended is None or self.first is None or self.tokens < 2:
            return None
        return (self.ended - self.first) / (self.tokens - 1)
