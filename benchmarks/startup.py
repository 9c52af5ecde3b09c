"""What one command costs before it simulates anything, and what a sweep's point costs.

The files of `sim` that a plain run loads, with their lines, by folder; the CPU seconds of a whole
command over those of its libraries, in pairs, all from bytecode as an installed package has it;
points a second of a sweep whose points differ in durations alone, on one core and on two.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import sim
from benchmarks.figures import Figure

NAME = "gpt3-175b-megatron"
LIBRARIES = "import numpy, pydantic, simpy, click"
COMMAND = f"import sys; sys.argv = ['sim', 'run', '{NAME}']; from sim.__main__ import main; main()"
POINTS = 960
ROOT = Path(sim.__file__).parent


def loaded(name: str = NAME) -> dict[str, tuple[int, int]]:
    """The files and lines of `sim` that `sim.run` loads, by folder."""
    code = (
        f"import json, sys, sim; sim.run({name!r}); own = [m for m in sys.modules.values()"
        " if m.__name__.partition('.')[0] == 'sim']; print(json.dumps([m.__file__ for m in own]))"
    )
    paths = [Path(path) for path in json.loads(_output(code))]
    files = Counter(str(path.parent.relative_to(ROOT)) for path in paths)
    lines: Counter[str] = Counter()
    for path in paths:
        lines[str(path.parent.relative_to(ROOT))] += len(path.read_text().splitlines())
    return {folder: (files[folder], lines[folder]) for folder in sorted(files)}


def paired(pairs: int = 7) -> float:
    """CPU seconds of a whole command over those of its libraries: the median of some pairs."""
    with TemporaryDirectory() as bytecode:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode, "PYTHONDONTWRITEBYTECODE": ""}

        def ratio() -> float:
            return _cpu_of(COMMAND, environment) / _cpu_of(LIBRARIES, environment)

        ratio()  # writes bytecode
        return median(ratio() for _ in range(pairs))


def points_a_second(jobs: int) -> float:
    """Points of a sweep over bandwidths; the time in which processes start counts."""
    sweep = f"sim.sweep({NAME!r}, {{'network.bandwidth': values}}, jobs={jobs})"
    code = (
        "import sim, time; values = ['90 Gb/s', '95 Gb/s']; "
        f"{sweep}; values = [f'{{100 + n / 10}} Gb/s' for n in range({POINTS})]; "
        f"began = time.perf_counter(); {sweep}; print(time.perf_counter() - began)"
    )
    return POINTS / float(_output(code))


def measure() -> dict[str, Any]:
    """All of it."""
    return {
        "loaded": loaded(),
        "paired": paired(),
        "points": {jobs: points_a_second(jobs) for jobs in (1, 2)},
    }


def rows(measured: dict[str, Any]) -> list[Figure]:
    """The figures of `measure` for the table."""
    files, lines = map(sum, zip(*measured["loaded"].values(), strict=True))
    one, two = (float(rate) for rate in measured["points"].values())
    return [
        Figure(what="files of sim that a plain run loads", value=f"{files:,}", bar="<= 130",
            plain="their lines, bar 20,000", beside=f"{lines:,}"),
        Figure(what=f"sim run {NAME}, CPU, over its libraries, in pairs",
            value=f"{measured['paired']:.2f}", bar="<= 2.5"),
        Figure(what="points a second of a sweep of bandwidths, one core", value=f"{one:.0f}",
            bar=">= 2,000", plain="two cores over one, bar 1.7", beside=f"{two / one:.2f}"),
    ]  # fmt: skip


def ratios(measured: dict[str, Any]) -> dict[str, float]:
    """A command over its libraries."""
    return {"command / its libraries": measured["paired"]}


def _output(code: str, environment: Mapping[str, str] = os.environ) -> str:
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return done.stdout


def _cpu_of(code: str, environment: Mapping[str, str]) -> float:
    began = _children()
    _output(code, environment)
    return _children() - began


def _children() -> float:
    spent = os.times()
    return spent.children_user + spent.children_system


def by_folder(found: dict[str, tuple[int, int]]) -> str:
    """A line a folder."""
    return "\n".join(f"{files:4} {lines:6}  {folder}" for folder, (files, lines) in found.items())


if __name__ == "__main__":
    from benchmarks.figures import aligned

    taken = measure()
    print(by_folder(taken["loaded"]), "", *aligned(rows(taken)), sep="\n")
