"""A check of the testbed: the prediction, the real software, how close they must be."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.testbed.hosts import Hosts, Measured
from tests.testbed.predict import Predictor

KIB, MIB = 1 << 10, 1 << 20

Predict = Callable[[Predictor], tuple[float, ...]]
Read = Callable[[Measured], tuple[float, ...]]


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """What is compared, in which unit, and the largest error allowed."""

    name: str = "time"
    unit: str = "ms"
    bar: float = 0.05


def _milliseconds(measured: Measured) -> tuple[float, ...]:
    return (1e3 * measured.fastest,)


@dataclass(frozen=True, kw_only=True)
class Check:
    """`slow` divides the rates of some hosts' links while it runs; the trunk between the halves of
    the hosts then carries no more than a link if it is `narrow`."""

    name: str
    pattern: str
    arguments: Mapping[str, Any]
    predict: Predict
    read: Read = _milliseconds
    quantities: tuple[Quantity, ...] = (Quantity(),)
    slow: Mapping[int, float] = field(default_factory=dict)
    warm: int = 1
    repeat: int = 5
    narrow: bool = False

    def measure(self, hosts: Hosts) -> tuple[float, ...]:
        """The quantities as measured: times are those of the fastest of five repetitions."""
        again = {"repeat": self.repeat, "warm": self.warm}
        measured = hosts.measure(self.pattern, **again, **self.arguments)
        return self.read(measured)


@dataclass(frozen=True)
class Calibration:
    """Measured beforehand: a message's fixed cost (s), passes without communication (s), and the
    traces of jobs on half as many hosts, by check."""

    message: float
    forward: float
    backward: float
    traces: Mapping[str, Sequence[Path]] = field(default_factory=dict)


def time(seconds: float) -> tuple[float, ...]:
    """As a check's quantity, in ms."""
    return (1e3 * seconds,)
