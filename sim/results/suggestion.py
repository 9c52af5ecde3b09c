"""A change of a script that may make its step shorter, before anybody has tried it."""

from collections.abc import Callable
from typing import Any

from sim.config.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """What to `change` at a `line` ("" for no line in particular), `why`, and the setup that it
    makes of another (`made`). A step then trains `samples` times as many samples."""

    line: str
    change: str
    why: str
    samples: float
    made: Callable[[Any], Any]
