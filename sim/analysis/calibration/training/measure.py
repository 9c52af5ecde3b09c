"""`sim measure`: run training steps of a scenario or of a script on this machine, and compare them
with their prediction."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from sim import kind, questions, run
from sim.analysis.calibration.fitting import gloo
from sim.analysis.calibration.timing import process_group, torch_device
from sim.analysis.calibration.training import real_run
from sim.analysis.calibration.training.comparison import JobComparison, compare
from sim.analysis.calibration.training.interleaved_kernels import time_share, write_profile
from sim.analysis.calibration.training.job_measurement import JobMeasurement, MeasuredRound
from sim.analysis.calibration.training.real_run import Interleaving, interleaving, measure_text
from sim.analysis.calibration.training.script import check, script_of
from sim.config import catalog
from sim.config.errors import InputError
from sim.jobs.capturing.capture import capture_script
from sim.jobs.recorded.memory import Memory
from sim.jobs.recorded.setup import RecordedScenario
from sim.model import counts
from sim.parallel.memory import memory
from sim.parallel.step import training_step
from sim.results.result import Result
from sim.scenario.scenario import BaseScenario
from sim.scenario.settings import Settings
from sim.scenario.setup import PlanSetup
from sim.simulate import answer

_ENDLESS = 10**9  # steps; the measurement ends the script before it has run them all


def measure(
    scenario: BaseScenario,
    *,
    device: str = "cpu",
    interleaving: Interleaving | None = None,
    calibrate: bool | None = None,
    report: Callable[[str], None] = lambda message: None,
) -> JobComparison | None:
    """Run the scenario's job in torch and predict it. Returns None on all ranks but rank 0.

    With `calibrate` (the default on CPUs, whose speed drifts), kernels are timed between the
    training steps, and the prediction uses these times. Otherwise it uses the scenario's own
    profile, or rates if there is no profile. Raises `InputError` if the job cannot be built here.
    """
    torch_device.require(device, "sim measure")
    setup = questions.planned(kind.set_up(scenario))
    check(setup.job, scenario.name, device)
    calibrate = device == "cpu" if calibrate is None else calibrate
    interleaving = interleaving or Interleaving()
    if calibrate:
        share = partial(time_share, device, setup.job.plan.precision)
        interleaving = replace(interleaving, time_kernels=share)
    processes = setup.job.plan.data_parallel
    script = script_of(setup.job, scenario.name, device, steps=_ENDLESS)
    measurement = process_group.run(
        measure_text, processes, script, device, interleaving, report, setup.job.stack.graph,
        device=device, threads=process_group.threads_each(processes) if device == "cpu" else 0,
    )  # fmt: skip
    if process_group.own_rank() > 0:
        return None
    return _compared(scenario, setup, measurement, calibrated=calibrate)


def asked(
    scenario: str | PathLike[str] | BaseScenario,
    settings: Settings = (),
    *,
    device: Literal["cuda", "cpu"] | None = None,
    steps: int = 20,
    calibrate: bool | None = None,
) -> JobComparison | None:
    """`sim.measure`: measure at least `steps` steps of a scenario, given by name or file,
    on `device` (by default on a GPU if there is one). Raises `InputError`."""
    return measure(
        kind.load(scenario, settings),
        device=available_device(device),
        interleaving=interleaving(steps),
        calibrate=calibrate,
    )


def printed(scenario: BaseScenario, *, device: str, steps: int) -> str:
    """Return the script that `measure` runs, with `steps` steps. Raises `InputError`."""
    setup = questions.planned(kind.set_up(scenario))
    check(setup.job, scenario.name, device)
    return script_of(setup.job, scenario.name, device, steps=steps)


def available_device(wanted: Literal["cuda", "cpu"] | None) -> Literal["cuda", "cpu"]:
    """Return the requested device, else a GPU if there is one. Raises `InputError`."""
    torch_device.require(wanted or "cpu", "sim measure")
    import torch

    return wanted or ("cuda" if torch.cuda.is_available() else "cpu")


def _compared(
    scenario: BaseScenario, setup: PlanSetup, measurement: JobMeasurement, *, calibrated: bool
) -> JobComparison:
    """Compare the measurement with a prediction. A `calibrated` prediction uses the kernels that
    were timed between the steps."""
    if calibrated:
        timings = sum(len(measured.kernels) for measured in measurement.rounds)
        source = f"{timings} timings between the steps"
        with TemporaryDirectory() as folder:
            result = _predicted(scenario, setup, measurement, Path(folder) / "measured.toml")
    else:
        source = setup.job.device.profile or f"the rates of {setup.job.device.name}"
        result = answer(setup)
    return compare(
        scenario.name,
        measurement,
        result,
        memory=memory(setup.job, training_step(setup.job), 0).total,
        parameters=counts.parameters(setup.job.model),
        source=source,
    )


def _predicted(
    scenario: BaseScenario, setup: PlanSetup, measurement: JobMeasurement, path: Path
) -> Result:
    """Predict the step from the kernels and all-reduces that were timed between the steps."""
    processes = setup.job.plan.data_parallel
    write_profile(measurement, _device_file(scenario), path, processes)
    changed = replace(scenario, change={**scenario.change, "device.profile": str(path)})
    calibrated = questions.planned(kind.set_up(changed))
    transfers = [transfer for measured in measurement.rounds for transfer in measured.transfers]
    if transfers:
        machine = gloo.fitted(calibrated.machine, processes, transfers)
        calibrated = replace(calibrated, machine=machine)
    return answer(calibrated)


def _device_file(scenario: BaseScenario) -> str:
    """Return the name of the device's file, as the scenario's topology gives it."""
    if not isinstance(scenario.topology, str):
        return scenario.topology.device.name
    path = catalog.find("topologies", scenario.topology, where=f"{scenario.name}, topology")
    named = scenario.changes("topology").get(
        "device", catalog.document("topologies", path).get("device")
    )
    if not isinstance(named, str):
        fault = "describes its device itself, so no profile can refine the device"
        raise InputError(catalog.place(path), fault, 'name one: device = "cpu"')
    return named


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
    """Run a script's steps on this machine (`world` ranks, by torchrun). Capture a step on a fake
    GPU, play it on a topology, and compare both.

    If `device` is "cpu", the script sees no GPU and must run without one. Raises `InputError` if
    the script fails.
    """
    try:
        recordings = capture_script(script, arguments, world=world)
    except InputError:
        raise
    except Exception as error:
        fault = f"raises {type(error).__name__}: {error}"
        raise InputError(str(script), fault, "run it with python first") from error
    name = script.stem
    played = RecordedScenario(name=name, record=recordings, topology=topology, stack=stack)
    result = run(kind.load(played, settings))
    measurement = _ran([str(script), *arguments], device, world, steps)
    peak = max(Memory(recording).peak().allocated for recording in recordings)
    return compare(
        name,
        measurement,
        result,
        memory=peak,
        parameters=result.parameters,
        source=f"recorded operators on {topology}, {stack}",
    )


def _ran(script: Sequence[str], device: str, world: int, steps: int) -> JobMeasurement:
    """Run a script in separate processes, and return its measurement."""
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {}
    with TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        run = ["-m", real_run.__name__, str(answer), str(steps), *script]
        started = ["-m", "torch.distributed.run", f"--nproc-per-node={world}"] if world > 1 else []
        done = subprocess.run(
            [sys.executable, *started, *run],
            env={**os.environ, **hidden}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode or not answer.exists():
            said = (done.stderr.strip().splitlines() or ["without a message"])[-1][:160]
            raise InputError(script[0], f"does not run here ({said})", "try it by itself first")
        seen: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    if "what" in seen:
        raise InputError(script[0], seen["what"], seen["remedy"])
    rounds = tuple(
        MeasuredRound(reference=entry["reference"], steps=tuple(entry["steps"]))
        for entry in seen.pop("rounds")
    )
    return JobMeasurement(rounds=rounds, **seen)
