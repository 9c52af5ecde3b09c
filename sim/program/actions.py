"""Actions: the entries of a pipeline schedule, as PyTorch's action strings write them.

F is a forward pass. I makes the input gradients of a backward pass, W its weight gradients, and B
both at once. Each action takes one microbatch through one of a stage's chunks of the model.
"""

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, get_args

Kind = Literal["F", "B", "I", "W"]
KINDS: tuple[Kind, ...] = get_args(Kind)
NAMES: Mapping[str, str] = {
    "F": "forward",
    "B": "backward",
    "I": "input gradients",
    "W": "weight gradients",
}


class Action(NamedTuple):
    """A pass of one microbatch, forward or backward, through one of a stage's chunks.

    >>> print(Action("F", 3), Action("W", 0, chunk=1))
    F3.0 W0.1
    """

    kind: Kind
    microbatch: int
    chunk: int = 0

    def __str__(self) -> str:
        return f"{self.kind}{self.microbatch}.{self.chunk}"


def read(words: str) -> Iterator[tuple[Kind, int]]:
    """Yield the kind and the chunk of each action in a text such as "F0 W1".

    >>> list(read("F0 W1"))
    [('F', 0), ('W', 1)]
    """
    for word in words.split():
        yield KINDS["FBIW".index(word[0])], int(word[1:])


class PassVariant(NamedTuple):
    """The properties of a stage's pass that determine its work. Passes of equal variants do equal
    work on different microbatches.

    `first` marks the first forward pass of a chunk in a step, and the first pass that makes the
    chunk's weight gradients; `last` marks the last pass that makes them. `beside` is the kind and
    the chunk of the pass that this pass overlaps.
    """

    kind: Kind
    chunk: int
    first: bool = False
    last: bool = False
    beside: tuple[Kind, int] | None = None

    @property
    def makes_gradients(self) -> bool:
        """Whether the pass makes gradients of weights."""
        return self.kind in ("B", "W")
