"""Measurements of a calibrated device other than kernel times: launches, copies, mutual slowdown.

A profile keeps these measurements in `[host]`, `[[copies]]` and `[[overlaps]]`:

    [host]
    issue = "4.1 us"
    latency = "7.9 us"
    node = "1.6 us"

    [[copies]]
    kind = "host to device"
    pinned = true
    bytes = "64 MiB"
    time = "1.22 ms"

    [[overlaps]]
    kernel = "gemm"
    beside = "copy"
    slowdown = 1.08
"""

import math
from collections.abc import Iterator
from dataclasses import fields
from typing import Literal

from sim.config.dataclass import dataclass
from sim.config.readable import quantity_text
from sim.config.units import Bytes, Seconds

CopyKind = Literal["host to device", "device to host", "device to device"]
Beside = Literal["copy", "all_reduce"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchTimes:
    """Seconds of a kernel launch.

    `issue` is the host's time for a launch in eager mode, while the queue of launches has room.
    `latency` is the time from a launch until the host knows that an empty kernel has ended. `node`
    is the device's time for an empty kernel in the replay of a CUDA graph; 0 where there are no
    graphs.
    """

    issue: Seconds
    latency: Seconds
    node: Seconds = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTime:
    """One copy of `bytes` that took `time`; `pinned` where the host's memory is page-locked."""

    kind: CopyKind
    pinned: bool = False
    bytes: Bytes
    time: Seconds

    def __post_init__(self) -> None:
        if not (0 < self.time < math.inf and self.bytes > 0):
            raise ValueError(f"{self.bytes:g} B in {self.time:g} s is not a valid copy")

    @property
    def bandwidth(self) -> float:
        """Bytes copied a second.

        >>> CopyTime(kind="host to device", pinned=True, bytes=1e9, time=0.02).bandwidth
        50000000000.0
        """
        return self.bytes / self.time


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowdown:
    """The factor on the time of a class of kernels while something runs `beside` them."""

    kernel: Literal["gemm", "stream"]
    beside: Beside
    slowdown: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Launch times, copies and slowdowns of a device; empty where they were not measured."""

    host: LaunchTimes | None = None
    copies: tuple[CopyTime, ...] = ()
    overlaps: tuple[Slowdown, ...] = ()

    def toml(self) -> str:
        """The tables as a profile's file keeps them.

        >>> slowdown = Slowdown(kernel="gemm", beside="copy", slowdown=1.08)
        >>> print(Environment(overlaps=(slowdown,)).toml())
        [[overlaps]]
        kernel = "gemm"
        beside = "copy"
        slowdown = 1.08
        """
        tables = [] if self.host is None else [_table("[host]", self.host)]
        tables += [_table("[[copies]]", copy) for copy in self.copies]
        tables += [_table("[[overlaps]]", slowdown) for slowdown in self.overlaps]
        return "\n\n".join(tables)


def _table(title: str, row: LaunchTimes | CopyTime | Slowdown) -> str:
    return "\n".join([title, *_lines(row)])


def _lines(row: LaunchTimes | CopyTime | Slowdown) -> Iterator[str]:
    for field in fields(row):
        yield f"{field.name} = {_written(getattr(row, field.name), field.name)}"


def _written(value: object, key: str) -> str:
    """A value as TOML; quantities carry their unit."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    assert isinstance(value, float | int)
    unit = {"bytes": "B", "slowdown": None}.get(key, "us")
    if unit is None:
        return f"{value:.4g}"
    return f'"{value:.0f} B"' if unit == "B" else f'"{quantity_text(value * 1e6, "us")}"'
