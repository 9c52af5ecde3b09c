"""`sim measure --script`: a training script's real steps here, beside their prediction."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from sim import run
from sim.analysis.calibration.training.comparison import JobComparison, compare
from sim.analysis.calibration.training.job_measurement import JobMeasurement, MeasuredRound
from sim.config.errors import InputError
from sim.jobs.capturing.capture import capture_script
from sim.jobs.recorded.memory import Memory
from sim.jobs.recorded.setup import RecordedScenario
from sim.kind import load
from sim.scenario.settings import Settings


def measure_script(
    script: Path,
    arguments: Sequence[str] = (),
    *,
    device: Literal["cuda", "cpu"],
    topology: str,
    stack: str,
    world: int = 1,
    steps: int = 10,
    settings: Settings = (),
) -> JobComparison:
    """Run a script's steps on this machine (`world` ranks, by torchrun), capture one on a GPU that
    is not there, play it on a topology, and lay both side by side.

    On a `device` "cpu" the script sees no GPU, and has to be content with that. Raises
    `InputError` where it fails.
    """
    recordings = capture_script(script, arguments, world=world)
    name = script.stem
    played = RecordedScenario(name=name, record=recordings, topology=topology, stack=stack)
    result = run(load(played, settings))
    measurement = _measured([str(script), *arguments], device, world, steps)
    peak = max(Memory(own).peak().allocated for own in recordings)
    return compare(
        name,
        measurement,
        result,
        memory=peak,
        parameters=result.parameters,
        source=f"recorded operators on {topology}, {stack}",
    )


def _measured(command: Sequence[str], device: str, world: int, steps: int) -> JobMeasurement:
    seen = _ran(command, device, world, steps)
    peak = seen["peak"]
    if not peak:  # a CPU's bytes are counted apart
        peak = _ran(command, device, world, 1, count=True)["peak"]
    half = len(seen["seconds"]) // 2
    rounds = tuple(
        MeasuredRound(reference=reference, steps=tuple({"step": one} for one in seconds))
        for reference, seconds in zip(
            seen["references"], (seen["seconds"][:half], seen["seconds"][half:]), strict=True
        )
    )
    return JobMeasurement(
        rounds=rounds,
        parameters=seen["parameters"],
        peak=float(peak),
        loss=0.0,
        machine=seen["machine"],
    )


def _ran(
    script: Sequence[str], device: str, world: int, steps: int, *, count: bool = False
) -> dict[str, Any]:
    """What a script did in processes of its own."""
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {}
    with TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        run = ["-m", "sim.analysis.calibration.real_run", str(answer), str(steps), str(int(count))]
        started = ["-m", "torch.distributed.run", f"--nproc-per-node={world}"] if world > 1 else []
        done = subprocess.run(
            [sys.executable, *started, *run, *script],
            env={**os.environ, **hidden}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode or not answer.exists():
            said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1][:160]
            raise InputError(script[0], f"does not run here ({said})", "try it by itself first")
        seen: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    if len(seen["seconds"]) < steps:
        what = f"ended after {len(seen['seconds'])} of {steps} steps behind the first"
        raise InputError(script[0], what, f"take --steps {max(len(seen['seconds']), 1)}, or less")
    return seen
