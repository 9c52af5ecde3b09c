"""Groups of samples on their way: a prompt, its answers, and the weights that wrote them."""

from dataclasses import dataclass, field

from sim.jobs.generation.request import Request


@dataclass(slots=True, eq=False)
class Sample:
    """An answer of `length` tokens in all, in `parts` between calls of tools, each of whose results
    brings so many tokens (`results`). `done` tokens are written, `version` wrote the first one and
    `versions` counts them. `rewarded` is when it has its reward, `written` when its last token was
    there (s)."""

    group: "Group"
    number: int
    parts: tuple[int, ...]
    results: tuple[int, ...] = ()
    part: int = 0
    ahead: int = 0  # tokens of the part that were written before an interruption
    done: int = 0
    read: int = 0  # tokens of results so far
    versions: dict[int, int] = field(default_factory=dict)
    request: Request | None = None
    server: int = -1
    begun: float = 0.0
    written: float = 0.0
    gone: bool = False

    @property
    def length(self) -> int:
        return sum(self.parts)

    @property
    def tokens(self) -> int:
        """Tokens of a row that holds it: prompt, answer, results of tools."""
        return self.group.prompt + self.length + sum(self.results)

    @property
    def oldest(self) -> int:
        """The version of the weights that wrote its first token."""
        return min(self.versions)

    def count(self, versions: dict[int, int]) -> None:
        """Tokens that were written, by version."""
        for version, tokens in versions.items():
            self.versions[version] = self.versions.get(version, 0) + tokens
            self.done += tokens
            self.ahead += tokens

    def forget(self) -> int:
        """Begin anew; the tokens that are lost."""
        lost = self.done
        self.versions = {}
        self.part = self.ahead = self.done = self.read = 0
        return lost


@dataclass(slots=True, eq=False)
class Group:
    """The answers to a prompt of so many tokens: ready when all `left` have their rewards. One that
    teaches nothing is `filtered` then."""

    number: int
    prompt: int
    begun: float
    filtered: bool
    samples: list[Sample] = field(default_factory=list)
    left: int = 0
    written: float = 0.0
    ready: float = 0.0

    @property
    def written_tokens(self) -> int:
        """Tokens of its answers so far."""
        return sum(sample.done for sample in self.samples)
