"""Actions: the entries of a pipeline schedule, as PyTorch's action strings write them.

F is a forward pass, I the input gradients and W the weight gradients of a backward pass, B both at
once. Each takes one microbatch through one of a stage's chunks of the model.
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
    """One microbatch, forward or backward, through one of a stage's chunks.

    >>> print(Action("F", 3), Action("W", 0, chunk=1))
    F3.0 W0.1
    """

    kind: Kind
    microbatch: int
    chunk: int = 0

    def __str__(self) -> str:
        return f"{self.kind}{self.microbatch}.{self.chunk}"


def read(words: str) -> Iterator[tuple[Kind, int]]:
    """Kinds and chunks as they are written in a row.

    >>> list(read("F0 W1"))
    [('F', 0), ('W', 1)]
    """
    for word in words.split():
        yield KINDS["FBIW".index(word[0])], int(word[1:])


class PassVariant(NamedTuple):
    """The properties that tell passes of a stage apart besides their microbatch: equal variants do
    equal work.

    `first` is a step's first of its chunk among forward passes, or among those that make weight
    gradients, `last` the last one of these; `beside` tells kind and chunk of a pass that it
    overlaps.
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
