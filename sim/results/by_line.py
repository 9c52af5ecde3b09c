"""The time and the memory of a step by lines of its script."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from sim.config.dataclass import dataclass

Part = Literal["forward", "again", "backward", "optimizer"]
PARTS: tuple[Part, ...] = ("forward", "again", "backward", "optimizer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of the script ("train.py:12"). `seconds` are the device's seconds per step for kernels
    from this line, by `PARTS`; a backward kernel belongs to the line that it differentiates. `sent`
    are the bytes of its collectives and messages; `text` is the line's text, if recorded."""

    line: str
    seconds: dict[Part, float]
    sent: float = 0.0
    text: str = ""

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The fullest moment of the fullest GPU: bytes `allocated`, `when` the moment is, and the bytes
    that each line of the script holds, the most first. `in_step` is the largest number of bytes
    allocated during the recorded step."""

    allocated: float
    in_step: float
    when: str
    lines: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ByLine:
    """The lines of the stage that computes longest, beginning with the line of the longest kernels.
    If memory was recorded, also the fullest moment of the stage that needs most memory. `recorded`
    says which torch, how many ranks and which GPU the recording had."""

    lines: tuple[Line, ...]
    fullest: Moment | None
    recorded: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """A suggested `change` of a script: `at` which line, `why`, and the `line` that costs the time
    ("" for no line in particular). `made` makes the changed setup from a setup; a step then trains
    `samples` times as many samples."""

    line: str
    at: str = ""
    change: str
    why: str
    samples: float
    made: Callable[[Any], Any]
