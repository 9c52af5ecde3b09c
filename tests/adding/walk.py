"""The way that everything added is taken: search, both engines, memory, pictures, traces."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sim import run
from sim.interface.cli.main import main
from sim.kind import load
from sim.results.result import Result
from sim.scenario.scenario import Scenario


def invoke(*words: str) -> str:
    """What a command prints that must succeed."""
    done = CliRunner().invoke(main, list(words), catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    return done.stdout


JOB = """
model = "llama3.2-1b"
topology = "dgx-a100-hdr"
stack = "megatron-core"
gpus = 4
[plan]
global_batch = 8
"""


def played(changes: dict[str, Any]) -> Result:
    """A small job played with and without a clock, which agree; drawn, with its memory."""
    job = _job(changes)
    clock, fast = run(job, engine="clock"), run(job, engine="auto")
    assert fast.step_time == pytest.approx(clock.step_time, rel=1e-9)
    assert fast.breakdown == pytest.approx(clock.breakdown, rel=1e-9, abs=1e-9 * clock.step_time)
    _remembered(fast)
    _drawn(job, fast)
    return fast


def usual(changes: dict[str, Any]) -> Result:
    """The same of what is packaged, which others test."""
    return run(_job(changes))


def _job(changes: dict[str, Any]) -> Scenario:
    Path("job.toml").write_text(JOB)
    return load("job.toml", changes)


def _remembered(result: Result) -> None:
    """The curve's peak is the memory that is reported."""
    assert max(curve.peak for curve in result.memory_curves) == result.memory_per_gpu["total"]


def _drawn(job: Scenario, result: Result) -> None:
    from sim.interface.outputs import memory, trace
    from sim.interface.plots.picture import save

    memory.write(result, Path("memory.png"))
    save(result.plot(), "step.png")
    for name in ("memory.png", "step.png"):
        assert Path(name).read_bytes().startswith(b"\x89PNG"), job.name
    trace.write(result, Path("trace.json"))
    assert json.loads(Path("trace.json").read_text())["traceEvents"]


def planned(*options: str, gpus: int = 8, batch: int = 16, model: str = "llama3.2-1b",
            topology: str = "dgx-a100-hdr") -> list[Any]:  # fmt: skip
    """The best layouts of a search with these options, whose times are the engine's."""
    words: Sequence[str] = ("plan", model, topology, "--gpus", str(gpus), "--jobs", "1",
                            "--global-batch", str(batch), "--json", *options)  # fmt: skip
    best: list[Any] = json.loads(invoke(*words))["best"]
    assert best
    for layout in best:
        assert layout["uncontended"] == pytest.approx(layout["step_time"], rel=0.1)
    return best
