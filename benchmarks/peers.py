"""Ours beside others': a collective by messages, and how near steps come to measured ones.

    python -m benchmarks.peers

A peer runs here where pip installs it (`make bench` gives llm-analysis an environment of its own,
`.venv/peers`), or is known by figures that somebody has measured: those of ASTRA-sim 4f387bc are of
two cores of an EPYC (Zen 4), so that ratios of time with them depend on this machine.
"""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.figures import Figure, aligned, best, timed
from sim.analysis.validation import shipped
from sim.analysis.validation.table import blank, records, setup_of
from sim.collectives.algorithms import ring
from sim.engine.messages import play_collective
from sim.hardware.cluster import topology
from sim.simulate import answer

HERE = Path(__file__).parent
PYTHON = HERE.parent / ".venv" / "peers" / "bin" / "python"
TABLES = ("megatron_sc21", "korthikanti2022")  # of A100s, whose stacks llm-analysis describes
GIB = 2.0**30

# ASTRA-sim 4f387bc, congestion-aware, ring all-reduce of 1 GiB at 50 GiB/s and 500 ns a link: how
# long it takes to simulate (s), by ranks, and what its clock says of 256 of them.
ASTRA = {256: 0.25, 1024: 4.4, 4096: 113.0}
ASTRA_STEP = 40_099_261e-9
_WIRES = {"bandwidth": "53.6870912 GB/s", "latency": "500 ns", "efficiency": 1.0, "nics": 1}


def rings() -> dict[str, Any]:
    """Seconds of playing a ring by messages, by ranks, and what it takes with 256."""
    keys = {f"network.{key}": value for key, value in _WIRES.items()}
    flat = {"network.oversubscription": 1.0, "gpus_per_node": 1, **keys}

    def play(ranks: int) -> float:
        cluster = topology.load("example-fat-tree", {**flat, "gpus": ranks})
        return play_collective(ring.all_reduce(ranks), GIB, cluster).seconds

    return {
        "seconds": {str(ranks): best(lambda ranks=ranks: play(ranks), 2) for ranks in ASTRA},
        "simulated": play(256),
    }


def steps() -> dict[str, Any]:
    """Mean absolute errors of ours and of llm-analysis; empty where it is not installed.

    It asks what share of the peak products achieve. It is given the one share for all rows with
    which its median error is none, and ours nothing.
    """
    if not PYTHON.exists():
        return {}
    rows = [row for table in TABLES for row in records(shipped.table(table))]
    measured = [float(row["step_time_s"]) for row in rows]
    ours, seconds = timed(lambda: [answer(setup_of(row)).step_time for row in rows])
    theirs = llm_analysis(rows)
    share = median(own / step for own, step in zip(theirs["steps"], measured, strict=True))
    return {
        "rows": len(rows),
        "ours": _error(ours, measured),
        "theirs": _error([own / share for own in theirs["steps"]], measured),
        "share": share,
        "seconds": seconds,
        "their_seconds": theirs["seconds"],
    }


def llm_analysis(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Its steps of these rows (s), and how long it takes."""
    plain = [{key: None if blank(value) else value for key, value in row.items()} for row in rows]
    words = [str(PYTHON), str(HERE / "llm_analysis_steps.py")]
    text = json.dumps(plain, default=str)
    done = subprocess.run(words, input=text, capture_output=True, text=True, check=True)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def _error(predicted: Sequence[float], measured: Sequence[float]) -> float:
    return fmean(abs(own / step - 1.0) for own, step in zip(predicted, measured, strict=True))


def measure() -> dict[str, Any]:
    """Both."""
    return {"rings": rings(), "steps": steps()}


def ratios(measured: dict[str, Any]) -> dict[str, float]:
    """Ours over theirs."""
    found = {
        f"playing a ring of {ranks:,} ranks / ASTRA-sim": (
            measured["rings"]["seconds"][str(ranks)] / theirs
        )
        for ranks, theirs in ASTRA.items()
    }
    found["what a ring of 256 ranks takes / ASTRA-sim"] = (
        measured["rings"]["simulated"] / ASTRA_STEP
    )
    if own := measured["steps"]:
        found["error of steps / llm-analysis, fitted"] = own["ours"] / own["theirs"]
    return found


def rows(measured: dict[str, Any]) -> list[Figure]:
    """The figures of `measure` for the table."""
    wanted = {256: "< 0.1 s", 4096: "< 5 s"}
    found = [
        Figure(what=f"ring all-reduce of 1 GiB among {ranks:,} ranks, message by message",
            value=f"{measured['rings']['seconds'][str(ranks)]:.3f} s", bar=wanted.get(ranks, ""),
            plain="ASTRA-sim on its machine", beside=f"{theirs:g} s")
        for ranks, theirs in ASTRA.items()
    ]  # fmt: skip
    found.append(
        Figure(what="  what 256 ranks take", value=f"{measured['rings']['simulated'] * 1e3:.4f} ms",
            plain="ASTRA-sim", beside=f"{ASTRA_STEP * 1e3:.4f} ms")
    )  # fmt: skip
    if own := measured["steps"]:
        found.append(
            Figure(what=f"mean error of {own['rows']} measured steps, nothing given",
                value=f"{own['ours']:.1%}",
                plain=f"llm-analysis, {own['share']:.2f} of the peak fitted to them",
                beside=f"{own['theirs']:.1%}")
        )  # fmt: skip
    return found


if __name__ == "__main__":
    print("\n".join(aligned(rows(measure()))))
