"""The host of a step that it limits: measured on this CPU, and by a capture with and without a
table of what operators cost.

    python -m benchmarks.host

A GPT (`captured/gpt_tiny.py`) runs for real in turns with the measurement of the table, because a
shared machine's speed drifts; medians, of both the quickest. On a CPU the operators'
own arithmetic is part of both, and grows with the width.
"""

import argparse
import importlib
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median

from sim.analysis.calibration.fitting.device_profile import host_table
from sim.analysis.calibration.timing.host_times import HostTime, host_times, quickest
from sim.hardware import device as devices
from sim.hardware import stack as stacks
from sim.jobs.capturing.capture import capture_script
from sim.jobs.recorded.host import HostTimes
from sim.jobs.recorded.kernels import kernel_of
from sim.jobs.recorded.recording import Recording
from sim.jobs.recorded.setup import host_of

SCRIPT = Path(__file__).parent / "captured" / "gpt_tiny.py"
PHASES = ("forward", "backward", "optimizer")
ROUNDS, STEPS, WARM = 8, 110, 10
CASES = [(width, kind) for width in ("16", "64") for kind in ("foreach", "fused")]

Phases = Mapping[str, float]


def measured(width: str, kind: str) -> Phases:
    """Seconds of each phase of a real step."""
    script = importlib.import_module("benchmarks.captured.gpt_tiny")
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    last = [time.perf_counter()]

    def passed(phase: str) -> None:
        now = time.perf_counter()
        seconds[phase].append(now - last[0])
        last[0] = now

    script.passed = passed
    script.main(width, kind, STEPS)
    return {phase: median(seconds[phase][WARM:]) for phase in PHASES}


def predicted(own: Recording, host: HostTimes) -> Phases:
    """The host's seconds of each phase of a recorded step."""
    seconds = dict.fromkeys(PHASES, 0.0)
    for event in own.events:
        if event.kind == "kernel":
            operator = own.operators[event.operator]
            seconds[event.phase] += host.of(event, operator, kernel_of(operator).launches)
    return seconds


def rows(rounds: int) -> Iterator[str]:
    """A row of the table for each case and phase."""
    plain = host_of(stacks.load("pytorch-eager"), devices.load("cpu"))
    recorded = {case: capture_script(SCRIPT, case, world=1)[0] for case in CASES}
    real: defaultdict[tuple[str, str], list[Phases]] = defaultdict(list)
    times: list[HostTime] = []
    for _ in range(rounds):
        times.extend(host_times("cpu"))
        for case in CASES:
            real[case].append(measured(*case))
    table = {(one.operator, one.phase): one for one in host_table(quickest(times))}
    for (width, kind), own in recorded.items():
        by_stack, by_table = (
            predicted(own, replace(plain, measured=known)) for known in ({}, table)
        )
        for phase in (*PHASES, "step"):
            seen = min(_of(one, phase) for one in real[width, kind])
            told, usual = (_of(one, phase) for one in (by_table, by_stack))
            cells = (width, kind, phase, _us(seen), _us(told), f"{told / seen - 1:+.0%}")
            yield f"| {' | '.join((*cells, _us(usual), f'{usual / seen - 1:+.0%}'))} |"


def _of(found: Phases, phase: str) -> float:
    return sum(found.values()) if phase == "step" else found[phase]


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} us"


def main() -> None:
    """Measure, capture, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    print("| width | AdamW | phase | measured | by the table | error | by the stack | error |")
    print("|---:|---|---|---:|---:|---:|---:|---:|")
    for row in rows(parser.parse_args().rounds):
        print(row)


if __name__ == "__main__":
    main()
