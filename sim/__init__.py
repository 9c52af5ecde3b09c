"""Predict how a training job runs on a cluster before anyone pays for the cluster.

>>> import sim
>>> result = sim.run("gpt3-175b-megatron")
>>> result.ranks, result.fits
(64, True)
>>> slower = sim.run(sim.load("gpt3-175b-megatron", {"network.bandwidth": "50 Gb/s"}))
>>> slower.step_time > result.step_time
True

`load` and `run` together do what the command `sim run` does. `plan`, `compare`, `explain`, `diff`,
`sweep`, `goodput`, `cost`, `collective`, `workers`, `replay`, `show`, `init`, `measure`,
`calibrate` and `validate` do what the commands of the same names do, and their arguments have the
names of the options. `capture` records a function that trains a model in torch; the function may
call `step` where a step ends. These functions take a `Scenario`, whose fields are names or objects.
Their answers have `to_dict`, `to_frame` and `plot`. Each name of this module is imported when it is
first used, so `import sim` costs almost nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.analysis.calibration.kernel_profile import calibrate
    from sim.analysis.calibration.training.measure import asked as measure
    from sim.analysis.collectives.times import collective
    from sim.analysis.comparison.compare import compare
    from sim.analysis.comparison.lines import diff
    from sim.analysis.explanation.explain import explain
    from sim.analysis.explanation.moves import moves
    from sim.analysis.networks.networks import networks
    from sim.analysis.reliability.budget import budget
    from sim.analysis.reliability.cost import cost
    from sim.analysis.reliability.goodput import goodput
    from sim.analysis.run import run
    from sim.analysis.search.plan import plan
    from sim.analysis.sweeps.answer import sweep
    from sim.analysis.validation.answer import validate
    from sim.config.catalog import names
    from sim.config.errors import InputError
    from sim.engine.timeline import Timeline
    from sim.hardware.cluster.topology import Topology
    from sim.hardware.device import Device
    from sim.hardware.stack import Stack
    from sim.interface.plots.sliders import sliders
    from sim.interface.serve.explore import explore
    from sim.interface.showing import show
    from sim.interface.starting import init
    from sim.jobs.capturing.capture import capture
    from sim.jobs.capturing.marks import step
    from sim.jobs.recorded.setup import RecordedScenario
    from sim.jobs.sharing.worker_counts import workers
    from sim.jobs.traces.replay import replay
    from sim.kind import load
    from sim.model.transformer import Transformer
    from sim.parallel.plan import Plan
    from sim.results.result import Result
    from sim.scenario.scenario import Scenario, Straggler

    __version__: str

__all__ = [
    "Device",
    "InputError",
    "Plan",
    "RecordedScenario",
    "Result",
    "Scenario",
    "Stack",
    "Straggler",
    "Timeline",
    "Topology",
    "Transformer",
    "__version__",
    "budget",
    "calibrate",
    "capture",
    "collective",
    "compare",
    "cost",
    "diff",
    "explain",
    "explore",
    "goodput",
    "init",
    "load",
    "measure",
    "moves",
    "names",
    "networks",
    "plan",
    "replay",
    "run",
    "show",
    "sliders",
    "step",
    "sweep",
    "validate",
    "workers",
]

_HOMES = {
    "Device": "sim.hardware.device",
    "InputError": "sim.config.errors",
    "Plan": "sim.parallel.plan",
    "RecordedScenario": "sim.jobs.recorded.setup",
    "Result": "sim.results.result",
    "Scenario": "sim.scenario.scenario",
    "Stack": "sim.hardware.stack",
    "Straggler": "sim.scenario.scenario",
    "Timeline": "sim.engine.timeline",
    "Topology": "sim.hardware.cluster.topology",
    "Transformer": "sim.model.transformer",
    "__version__": "sim.config.version:VERSION",
    "budget": "sim.analysis.reliability.budget",
    "calibrate": "sim.analysis.calibration.kernel_profile",
    "capture": "sim.jobs.capturing.capture",
    "collective": "sim.analysis.collectives.times:collective",
    "compare": "sim.analysis.comparison.compare:compare",
    "networks": "sim.analysis.networks.networks:networks",
    "cost": "sim.analysis.reliability.cost",
    "diff": "sim.analysis.comparison.lines:diff",
    "explain": "sim.analysis.explanation.explain",
    "explore": "sim.interface.serve.explore",
    "goodput": "sim.analysis.reliability.goodput",
    "init": "sim.interface.starting",
    "load": "sim.kind",
    "measure": "sim.analysis.calibration.training.measure:asked",
    "moves": "sim.analysis.explanation.moves",
    "names": "sim.config.catalog",
    "plan": "sim.analysis.search.plan",
    "replay": "sim.jobs.traces.replay",
    "run": "sim.analysis.run",
    "show": "sim.interface.showing",
    "sliders": "sim.interface.plots.sliders",
    "step": "sim.jobs.capturing.marks",
    "sweep": "sim.analysis.sweeps.answer",
    "validate": "sim.analysis.validation.answer",
    "workers": "sim.jobs.sharing.worker_counts",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sim' has no attribute {name!r}")
    home, _, own_name = _HOMES[name].partition(":")
    found = getattr(import_module(home), own_name or name)
    if callable(found) and not isinstance(found, type):
        found = import_module("sim.config.checked").checked_call(found, f"sim.{name}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
