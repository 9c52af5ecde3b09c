"""`sim measure`: a scenario's training step on this machine, compared with its prediction."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from sim import kind
from sim.analysis.calibration.fitting import loopback
from sim.analysis.calibration.timing import process_group, torch_device
from sim.analysis.calibration.training import supported_jobs
from sim.analysis.calibration.training.comparison import JobComparison, compare
from sim.analysis.calibration.training.interleaved_kernels import time_share, write_profile
from sim.analysis.calibration.training.interleaving import Interleaving, measure_on_rank
from sim.analysis.calibration.training.job_measurement import JobMeasurement
from sim.config import catalog
from sim.config.errors import InputError
from sim.model import counts
from sim.parallel.memory import memory
from sim.parallel.step import training_step
from sim.results.result import Result
from sim.scenario.scenario import BaseScenario
from sim.scenario.setup import PlanSetup
from sim.simulate import answer


def measure(
    scenario: BaseScenario,
    *,
    device: str = "cpu",
    interleaving: Interleaving | None = None,
    calibrate: bool | None = None,
    report: Callable[[str], None] = lambda message: None,
) -> JobComparison | None:
    """Run the scenario's job in torch and predict it; None on ranks that do not report.

    With `calibrate` (the default on CPUs, whose speed drifts) kernels are timed between the
    training steps, and the prediction is made from these times; otherwise from the scenario's own
    profile, or from rates if it has none. Raises `InputError` if the job cannot be built here.
    """
    torch_device.require(device, "sim measure")
    setup = kind.planned(kind.set_up(scenario))
    supported_jobs.check(setup.job, scenario.name, device)
    calibrate = device == "cpu" if calibrate is None else calibrate
    interleaving = interleaving or Interleaving()
    if calibrate:
        share = partial(time_share, device, setup.job.plan.precision)
        interleaving = replace(interleaving, time_kernels=share)
    processes = setup.job.plan.data_parallel
    measurement = process_group.run(
        measure_on_rank, processes, setup.job, device, interleaving, report,
        device=device, threads=process_group.threads_each(processes) if device == "cpu" else 0,
    )  # fmt: skip
    if process_group.own_rank() > 0:
        return None
    return _compared(scenario, setup, measurement, calibrated=calibrate)


def available_device(wanted: Literal["cuda", "cpu"] | None) -> Literal["cuda", "cpu"]:
    """The device asked for, else a GPU if there is one. Raises `InputError`."""
    torch_device.require(wanted or "cpu", "sim measure")
    import torch

    return wanted or ("cuda" if torch.cuda.is_available() else "cpu")


def _compared(
    scenario: BaseScenario, setup: PlanSetup, measurement: JobMeasurement, *, calibrated: bool
) -> JobComparison:
    """The measurement beside the prediction; `calibrated` from kernels that were timed with it."""
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
    """The step on the device as it was timed between the steps."""
    processes = setup.job.plan.data_parallel
    write_profile(measurement, _device_file(scenario), path, processes)
    changed = replace(scenario, change={**scenario.change, "device.profile": str(path)})
    calibrated = kind.planned(kind.set_up(changed))
    transfers = [transfer for measured in measurement.rounds for transfer in measured.transfers]
    if transfers:
        machine = loopback.fitted(calibrated.machine, processes, transfers)
        calibrated = replace(calibrated, machine=machine)
    return answer(calibrated)


def _device_file(scenario: BaseScenario) -> str:
    """The name of the device's file, as the scenario's topology gives it."""
    if not isinstance(scenario.topology, str):
        return scenario.topology.device.name
    path = catalog.find("topologies", scenario.topology, where=f"{scenario.name}, topology")
    named = scenario.changes("topology").get(
        "device", catalog.document("topologies", path).get("device")
    )
    if not isinstance(named, str):
        what = "describes its device itself, so that no profile can refine it"
        raise InputError(catalog.place(path), what, 'name one: device = "cpu"')
    return named
