"""Memory over a step: the peak is the one that is reported, and every view shows the same curve."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from sim import run
from sim.interface.cli.main import main
from sim.interface.outputs import memory, trace
from sim.kind import load
from sim.results.result import Result

JOBS: dict[str, dict[str, object]] = {
    "1F1B": {},
    "ZeRO-3": {"plan.zero": 3, "plan.pp": 1, "plan.dp": 8},
    "zero bubble": {"plan.schedule": "zb-h1"},
    "interleaved": {"plan.schedule": "interleaved", "plan.interleave": 2},
    "a slow rank": {"straggler": [{"rank": 0, "factor": 1.5}]},
    "recomputation": {"plan.recompute": "full"},
}


@cache
def result(name: str) -> Result:
    return run(load("megatron-1.7b", {"gpus": 8, "plan.tp": 1, "plan.pp": 4, "plan.dp": 2,
                                           "plan.global_batch": 16, "plan.microbatch": 1,
                                           **JOBS[name]}))  # fmt: skip


@pytest.mark.parametrize("name", JOBS)
def test_the_peak_is_the_one_that_is_reported(name: str) -> None:
    curves, reported = result(name).memory_curves, result(name).memory_per_gpu["total"]
    assert max(curve.peak for curve in curves) == reported
    assert [curve.peak for curve in curves] == [row["memory"] for row in result(name).stages]
    for curve in curves:
        assert curve.total.max() == pytest.approx(curve.peak, rel=1e-12)


@pytest.mark.parametrize("name", JOBS)
def test_a_curve_runs_over_the_step_and_ends_as_it_began(name: str) -> None:
    for curve in result(name).memory_curves:
        assert (np.diff(curve.times) >= 0.0).all()
        assert curve.times[0] == 0.0
        assert curve.times[-1] <= result(name).step_time * (1 + 1e-12)
        assert (curve.bytes >= -1.0).all()
        kept = dict(zip(curve.parts, (curve.bytes[-1] - curve.bytes[0]).tolist(), strict=True))
        assert all(abs(size) < 1.0 for part, size in kept.items() if part != "optimizer step")


def test_earlier_stages_hold_more_microbatches() -> None:
    """1F1B: p - s are in flight on stage s."""
    held = [
        curve.bytes[:, curve.parts.index("activations")].max() / layers["layers"]
        for curve, layers in zip(result("1F1B").memory_curves, result("1F1B").stages, strict=True)
    ]
    assert held[1] / held[2] == pytest.approx(3 / 2, rel=0.01)


def test_activations_begin_and_end_with_their_passes() -> None:
    curve = result("1F1B").memory_curves[0]
    column = curve.bytes[:, curve.parts.index("activations")]
    spans = [s for s in result("1F1B").timeline.spans if s.role == 0 and s.stream == "compute"]
    first = next(span for span in spans if span.args.get("phase") == "F")
    last = [span for span in spans if span.args.get("phase") == "B"][-1]
    assert curve.times[np.flatnonzero(column > 1.0)[0]] == first.start
    assert curve.times[np.flatnonzero(column > 1.0)[-1]] < last.end


def test_the_table_has_every_stage_and_part(tmp_path: Path) -> None:
    memory.write(result("1F1B"), tmp_path / "memory.csv")
    table = pd.read_csv(tmp_path / "memory.csv")
    assert list(table.columns[:3]) == ["stage", "time", "total"]
    assert table.total.max() == pytest.approx(result("1F1B").memory_per_gpu["total"])
    parts = table.drop(columns=["stage", "time", "total"]).sum(axis=1)
    assert np.allclose(parts, table.total)


def test_the_trace_has_it_as_counters(tmp_path: Path) -> None:
    trace.write(result("1F1B"), tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    counters = [event for event in events if event["ph"] == "C" and "total" in event["args"]]
    assert {event["pid"] for event in counters} == {0, 1, 2, 3}
    most = max(event["args"]["total"] for event in counters)
    assert most == pytest.approx(result("1F1B").memory_per_gpu["total"] / 2**30, abs=1e-5)


@pytest.mark.parametrize("suffix", ["png", "svg", "csv"])
def test_the_command_writes_it(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"memory.{suffix}"
    done = CliRunner().invoke(main, ["run", "gpt2-one-gpu", "--memory", str(path)])
    assert done.exit_code == 0
    assert done.stderr == f"wrote {path}\n"
    assert path.stat().st_size > 1000


def test_shared_updates_have_no_curve(tmp_path: Path) -> None:
    path = tmp_path / "memory.png"
    done = CliRunner().invoke(main, ["run", "ps-async", "--set", "sharing.steps=2",
                                     "--memory", str(path)])  # fmt: skip
    assert done.exit_code == 2
    assert "--memory: such a job has no curve of memory" in done.stderr
    assert not path.exists()


def test_the_picture_says_what_comes_and_goes_and_stages_fill_their_axis() -> None:
    fig = result("1F1B").plot("memory")
    parts, stages = fig.axes
    names = [text.get_text() for text in parts.get_legend().get_texts()]
    weights = result("1F1B").memory_per_gpu["weights"] / 2**30
    assert f"weights, {weights:.1f}" in names  # all the time
    assert any(name.startswith("activations, 0.0 to ") for name in names)
    assert "come and go" in parts.get_title(loc="left")
    levels = [line.get_ydata() for line in stages.lines]
    low, high = stages.get_ylim()
    least, most = min(map(min, levels)), max(map(max, levels))
    assert (most - least) / (high - low) > 0.8
