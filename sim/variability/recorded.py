"""Read recorded step times from a CSV file as the factors of a `Trace`."""

from itertools import pairwise
from pathlib import Path

import numpy as np

from sim.config import gate, reads
from sim.config.errors import InputError

_Line = tuple[int, str]  # number and text of a line of the file


def factors(path: Path) -> tuple[float, ...]:
    """Return step times divided by their median, in order.

    The last column of the CSV file holds step times (s); a first column may number the steps. A
    header and comments are skipped. Raises `InputError` for a missing file, an empty file, a line
    without a valid time, or a step number that is left out.
    """
    where = f"trace {path}"
    if not reads.exists(path):
        raise InputError(where, "no such file", "name a CSV of step times")
    text = reads.text(path, where=where).rstrip()
    lines = [line for line in enumerate(text.splitlines(), 1) if not line[1].startswith("#")]
    if lines and _is_header(lines[0][1]):
        del lines[0]
    times = [_step_time(line, number, where) for number, line in lines]
    if not times:
        raise InputError(where, "holds no step times", "write one a line, in seconds")
    _check_numbers(lines, where)
    return tuple((np.array(times) / np.median(times)).tolist())


def _is_header(line: str) -> bool:
    return _time(line) is None and bool(line.split(",")[-1].strip())


def _time(line: str) -> float | None:
    try:
        return float(line.split(",")[-1])
    except ValueError:
        return None


def _step_time(line: str, number: int, where: str) -> float:
    seconds = _time(line)
    if seconds is None:
        fault = f"line {number} holds no step time: {line.strip()!r}"
        raise InputError(where, fault, "fill the hole or leave the line out")
    if not seconds > 0.0 or gate.fault_of(seconds):
        fault = f"line {number}: {seconds} s is not a valid step time"
        raise InputError(where, fault, "correct it or leave the line out")
    return seconds


def _check_numbers(lines: list[_Line], where: str) -> None:
    """Raise `InputError` if steps have numbers and a number is left out."""
    numbers = [line.split(",")[0].strip() for _, line in lines if "," in line]
    if not all(number.isdecimal() for number in numbers):
        return
    for before, after in pairwise(map(int, numbers)):
        if after != before + 1:
            fault = f"step {before} is followed by step {after}"
            raise InputError(where, fault, "fill the hole or leave the numbers out")
