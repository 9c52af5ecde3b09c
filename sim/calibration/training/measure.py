"""`sim measure`: a scenario's training step on this machine, beside its prediction."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from sim.calibration.timing import loopback, ranks
from sim.calibration.training import buildable, turns
from sim.calibration.training.comparison import Comparison, compare
from sim.calibration.training.observation import Observation
from sim.calibration.training.rounds import Course, observe
from sim.config import catalog
from sim.config.errors import InputError
from sim.parallel.footprint import footprint
from sim.results.result import Result
from sim.scenario.scenario import Scenario
from sim.scenario.setup import Setup, from_scenario
from sim.simulate import run

Report = Callable[[str], None]


def measure(
    scenario: Scenario,
    *,
    device: str = "cpu",
    course: Course | None = None,
    calibrate: bool | None = None,
    report: Report = lambda said: None,
) -> Comparison | None:
    """Run the scenario's job in real torch and predict it; None on ranks that do not report.

    With `calibrate` (the default on CPUs, whose speed drifts) kernels are timed in turns with the
    training steps, and the prediction is made from what was timed; otherwise from the scenario's
    own profile, or from rates where it has none. Raises `InputError` where the job cannot be built
    here.
    """
    check_device(device)
    setup = from_scenario(scenario)
    buildable.check(setup.job, scenario.name, device)
    if device == "cpu":
        buildable.check_memory(setup.job, scenario.name)
    calibrate = device == "cpu" if calibrate is None else calibrate
    course = course or Course()
    if calibrate:
        course = replace(
            course, calibrate=turns.Turns(device=device, precision=setup.job.plan.precision)
        )
    processes = setup.job.plan.replicas
    seen = ranks.run(
        observe, processes, setup.job, device, course, report,
        device=device, threads=threads(processes) if device == "cpu" else 0,
    )  # fmt: skip
    if ranks.own_rank() > 0:
        return None
    return _beside(scenario, setup, seen, device if calibrate else None)


def device_here(wanted: Literal["cuda", "cpu"] | None) -> Literal["cuda", "cpu"]:
    """The device asked for, else a GPU where there is one. Raises `InputError`."""
    check_device(wanted or "cpu")
    import torch

    return wanted or ("cuda" if torch.cuda.is_available() else "cpu")


def check_device(device: str) -> None:
    """Raise `InputError` unless torch is installed and has the device."""
    try:
        import torch
    except ImportError:
        what = "sim measure runs torch, which is not installed"
        raise InputError("torch", what, "pip install 'clustersim[torch]'") from None
    if device == "cuda" and not torch.cuda.is_available():
        what = "torch finds no CUDA device on this machine"
        raise InputError("--device cuda", what, "run it on a GPU node, or with --device cpu")


def threads(processes: int) -> int:
    """Threads of each of so many processes that share this machine's cores."""
    import os

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, (cores or 1) // processes)


def _beside(
    scenario: Scenario, setup: Setup, seen: Observation, calibrated: str | None
) -> Comparison:
    """The prediction, from what was timed meanwhile where it was."""
    if calibrated is None:
        source = setup.job.device.profile or f"the rates of {setup.job.device.name}"
        result = run(setup)
    else:
        source = f"{sum(len(one.kernels) for one in seen.rounds)} timings between the steps"
        with TemporaryDirectory() as folder:
            result = _predicted(scenario, setup, seen, Path(folder) / "measured.toml")
    return compare(
        scenario.name,
        seen,
        result,
        memory=footprint(setup.job, 0).total,
        parameters=setup.job.model.parameters,
        source=source,
    )


def _predicted(scenario: Scenario, setup: Setup, seen: Observation, path: Path) -> Result:
    """The step on the device as it was timed in turns with it."""
    processes = setup.job.plan.replicas
    turns.profile(seen, _device_file(scenario), path, processes)
    timed = replace(scenario, change={**scenario.change, "device.profile": str(path)})
    found = from_scenario(timed)
    transfers = [one for turn in seen.rounds for one in turn.transfers]
    if transfers:
        found = replace(found, machine=loopback.fitted(found.machine, processes, transfers))
    return run(found)


def _device_file(scenario: Scenario) -> str:
    """The name of the device's file, as the scenario's topology gives it."""
    path = catalog.find("topologies", scenario.topology, where=f"{scenario.name}, topology")
    named = scenario.changes("topology").get("device", catalog.read(path).get("device"))
    if not isinstance(named, str):
        what = "describes its device itself, so that no profile can refine it"
        raise InputError(catalog.place(path), what, 'name one: device = "cpu"')
    return named
