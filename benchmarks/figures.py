"""What all benchmarks share: how time is taken, and how figures are printed."""

import os
import platform
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure, the bar that it is held to, and a plain way to the same beside it."""

    what: str
    value: str
    bar: str = ""
    plain: str = ""
    beside: str = ""


def best(act: Callable[[], object], repeat: int) -> float:
    """The shortest of a few runs, in seconds."""
    return min(timed(act)[1] for _ in range(repeat))


def least_cpu(act: Callable[[], object], repeat: int) -> float:
    """The least CPU seconds of a few runs, their processes included: what others do on the machine
    adds little to them."""
    return min(_cpu(act) for _ in range(repeat))


def _cpu(act: Callable[[], object]) -> float:
    began = _spent()
    act()
    return _spent() - began


def _spent() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def timed(act: Callable[[], Any]) -> tuple[Any, float]:
    """What a call returns, and its seconds."""
    began = time.perf_counter()
    returned = act()
    return returned, time.perf_counter() - began


def machine() -> dict[str, Any]:
    """Where and with what the figures are measured."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in ("clustersim", "simpy", "numpy")},
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def peak_mib() -> float:
    """The most memory that this process has held, in MiB.

    Not `ru_maxrss`, which a process inherits from whoever started it.
    """
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024.0


def aligned(figures: Sequence[Figure]) -> list[str]:
    """Figures as rows of text, under a head."""
    head = ("figure", "measured", "bar", "beside it, a plain way", "measured")
    cells = [head, *((f.what, f.value, f.bar, f.plain, f.beside) for f in figures)]
    wide = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = [
        f"{a:<{wide[0]}}  {b:>{wide[1]}}  {c:<{wide[2]}}  {d:<{wide[3]}}  {e:>{wide[4]}}".rstrip()
        for a, b, c, d, e in cells
    ]
    return [lines[0], "-" * max(map(len, lines)), *lines[1:]]
