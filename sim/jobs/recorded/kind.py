"""The kind of scenarios that play a recorded step: the first file to read of such jobs."""

import time
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from sim.config import reads
from sim.config.errors import InputError
from sim.engine.accounts import accounts
from sim.engine.play import Engine, play
from sim.jobs.recorded.assemble import report
from sim.jobs.recorded.axes import DATA_AXIS, REPLICAS_AXIS
from sim.jobs.recorded.by_line import by_line, kernels
from sim.jobs.recorded.setup import Recorded, RecordedScenario, from_scenario
from sim.jobs.recorded.speeds import speeds
from sim.results.likely import Pace, likely
from sim.results.result import Result
from sim.scenario.settings import head_of
from sim.simulate import refuse_task

__all__ = [
    "ANSWER",
    "LACKS",
    "SCENARIO",
    "answer",
    "by_line",
    "document",
    "kernels",
    "pace",
    "set_up",
    "speeds",
]

SCENARIO, ANSWER = RecordedScenario, Result
LACKS = (
    "is the recorded step of a script: it has no plan",
    "ask `sim run`, explain, compare, sweep, goodput or cost",
)
_STATE = 12.0  # bytes of a parameter in a checkpoint: fp32 weights and two moments (Adam)


def document(record: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The document of a recording on the cluster that settings name. Raises `InputError`."""
    if not reads.exists(Path(record)):
        raise InputError(record, "is not there", "record it with `sim capture`")
    for key in settings:
        if head_of(key) == "plan":
            fault = "a recorded script keeps the layout that it ran with"
            remedy = "leave it out, or capture the script anew with another layout"
            raise InputError(f"setting {key}", fault, remedy)
    if "topology" not in settings:
        raise InputError(record, "no topology to play it on", "name one: see `sim list topologies`")
    name, cluster = (Path(path).name for path in (record, str(settings["topology"])))
    called = f"{name.partition('.')[0]}, {cluster.removesuffix('.toml')}"
    return {"name": called, "record": record}


def set_up(scenario: RecordedScenario, *, task: Any = None, brief: bool = False) -> Recorded:
    """The scenario's recordings on its cluster. Raises `InputError`."""
    refuse_task(scenario.name, task)
    return from_scenario(scenario)


def answer(setup: Recorded, *, engine: Engine = "auto", unfold: bool = False) -> Result:
    """The step as it is played."""
    began = time.perf_counter()
    program, noted = setup.placed({})
    record = play(program, setup.machine, engine=engine, unfold=unfold)
    remembered = setup.remembered(record, noted)
    if remembered is not setup:
        program = remembered.program
    wall = time.perf_counter() - began
    return report(remembered, program, record, accounts(record), wall_seconds=wall)


def pace(setup: Recorded) -> Pace:
    """The pace of a recorded step. Raises `InputError` for a script that has no tokens to count."""
    result = answer(setup)
    if not result.tokens_per_second:
        fault = "the recorded script looks up no tokens, so its cost per token is unknown"
        raise InputError(setup.name, fault, "describe the model in a scenario")
    return Pace(
        topology=setup.machine.topology,
        seconds=result.step_time,
        tokens=result.tokens_per_second * result.step_time,
        size=_STATE * result.parameters,
        replicas=prod(result.inputs.plan.get(axis, 1) for axis in (DATA_AXIS, REPLICAS_AXIS)),
        inputs=result.inputs,
        fits=result.fits,
        sure=likely(result),
    )
