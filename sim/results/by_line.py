"""A step by the lines of the script that it is of."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from sim.config.dataclass import dataclass

Part = Literal["forward", "again", "backward", "optimizer"]
PARTS: tuple[Part, ...] = ("forward", "again", "backward", "optimizer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of the script ("train.py:12") and the device's seconds a step of the kernels that come
    from it, by `PARTS`; backward kernels are of the line that they differentiate. Its collectives
    and messages have `sent` so many bytes; `text` is what the line says, if that was recorded."""

    line: str
    seconds: dict[Part, float]
    sent: float = 0.0
    text: str = ""

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The fullest moment of the fullest GPU: bytes `allocated`, when it is, and how many of them
    each line of the script has taken, the most first; `in_step` are the most bytes that are
    allocated during the recorded step."""

    allocated: float
    in_step: float
    when: str
    lines: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ByLine:
    """The lines of the stage that computes longest, those of the longest kernels first, and the
    fullest moment of the stage that needs most memory, if memory was recorded; `recorded` says with
    what."""

    lines: tuple[Line, ...]
    fullest: Moment | None
    recorded: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """What to `change` `at` a line, `why`, the `line` that costs the time ("" for no line in
    particular), and the setup that it makes of another (`made`). A step then trains `samples` times
    as many samples."""

    line: str
    at: str = ""
    change: str
    why: str
    samples: float
    made: Callable[[Any], Any]
