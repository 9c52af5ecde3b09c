"""Groups of samples: a prompt, its answers, and the versions of the weights that wrote them."""

from dataclasses import dataclass, field

from sim.jobs.generation.batch import Request


@dataclass(slots=True, eq=False)
class Sample:
    """An answer of `length` tokens. Calls of tools divide it into `parts`; `results` are the tokens
    of the tools' results. So far `done` tokens are written; `versions` counts them by version of
    the weights. The last token is written at the moment `written` (s). `gone` samples were dropped.
    """

    group: "Group"
    number: int
    parts: tuple[int, ...]
    results: tuple[int, ...] = ()
    part: int = 0
    ahead: int = 0  # tokens of the part that were written before an interruption
    done: int = 0
    read: int = 0  # tokens of tools' results that the server has read so far
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
        """Tokens of the sample in training: prompt, answer and results of tools."""
        return self.group.prompt + self.length + sum(self.results)

    @property
    def oldest(self) -> int:
        """The version of the weights that wrote its first token, the oldest of all its versions."""
        return min(self.versions)

    def count(self, versions: dict[int, int]) -> None:
        """Count tokens that were written, by version of the weights."""
        for version, tokens in versions.items():
            self.versions[version] = self.versions.get(version, 0) + tokens
            self.done += tokens
            self.ahead += tokens

    def forget(self) -> int:
        """Begin anew; return the number of tokens that are lost."""
        lost = self.done
        self.versions = {}
        self.part = self.ahead = self.done = self.read = 0
        return lost


@dataclass(slots=True, eq=False)
class Group:
    """The answers to a prompt of `prompt` tokens. A group is ready when all answers have their
    rewards; `left` answers have none yet. A `filtered` group teaches nothing and is replaced."""

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
        """Tokens of its answers written so far."""
        return sum(sample.done for sample in self.samples)
