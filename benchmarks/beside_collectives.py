"""How much longer kernels of a profiled step take beside collectives than alone.

    python -m benchmarks.beside_collectives TRACE [--collectives REGEX] [--above SECONDS]

Kernels of one name, grid and block that a trace of PyTorch's profiler has both ways, at least twice
alone: the ratio of their medians, and the median of these ratios. A kernel is beside a collective
for 98 % of its time and more, alone for 2 % and less. Left out are kernels whose times alone differ
by more than a factor of two, which have several sizes, and products, unless `--kernels` names them.
"""

import re
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from sim.jobs.traces import kineto

ALONE, BESIDE = 0.02, 0.98
Kernel = tuple[str, str, str]
Span = tuple[float, float]


def ratios(
    events: Sequence[Mapping[str, Any]], collectives: str, kernels: str, above: float
) -> dict[Kernel, float]:
    """Median seconds beside collectives over those alone, by name, grid and block."""
    ran = [e for e in events if e.get("ph") == "X" and e.get("cat") == "kernel"]
    calls = [e for e in ran if re.search(collectives, e["name"])]
    spans = _joined((float(e["ts"]), float(e["ts"] + e["dur"])) for e in calls)
    alone, beside = defaultdict(list), defaultdict(list)
    for event in ran:
        if re.search(collectives, event["name"]) or not re.search(kernels, event["name"]):
            continue
        begin, seconds = float(event["ts"]), float(event["dur"])
        covered = _covered((begin, begin + seconds), spans) / seconds if seconds else 0.5
        args = event.get("args", {})
        key = (event["name"], str(args.get("grid")), str(args.get("block")))
        if covered <= ALONE:
            alone[key].append(seconds)
        elif covered >= BESIDE:
            beside[key].append(seconds)
    return {
        key: median(beside[key]) / median(alone[key])
        for key in alone.keys() & beside.keys()
        if len(alone[key]) > 1
        and max(alone[key]) <= 2 * min(alone[key])
        and 1e-6 * median(alone[key]) >= above
    }


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Spans of time in which at least one of these lasts.

    >>> _joined([(3.0, 4.0), (0.0, 2.0), (1.0, 3.0)])
    [(0.0, 4.0)]
    """
    found: list[Span] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            begin, end = found[-1][0], max(found.pop()[1], end)
        found.append((begin, end))
    return found


def _covered(span: Span, spans: Sequence[Span]) -> float:
    return sum(max(0.0, min(span[1], end) - max(span[0], begin)) for begin, end in spans)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print each kernel's ratio, and their median."""
    parser = ArgumentParser(prog="python -m benchmarks.beside_collectives", description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--collectives", default="nccl|internode::(dispatch|combine)")
    parser.add_argument("--kernels", default=r"^(?!.*(gemm|device_kernel|attn|nccl|internode))")
    parser.add_argument("--above", type=float, default=20e-6, metavar="SECONDS")
    options = parser.parse_args(arguments)
    events = kineto.events_of(options.trace)
    found = ratios(events, options.collectives, options.kernels, options.above)
    for (name, grid, block), ratio in sorted(found.items(), key=lambda each: -each[1]):
        print(f"{ratio:5.2f}  {name.split('(')[0][-60:]}  {grid} {block}")
    print(f"{len(found)} kernels, median {median(found.values()):.2f}" if found else "none")


if __name__ == "__main__":
    main()
