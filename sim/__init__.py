"""Predict how a training job runs on a cluster before anyone pays for the cluster.

>>> import sim
>>> result = sim.run("gpt3-175b-megatron")
>>> result.ranks, result.fits
(64, True)
>>> slower = sim.run(sim.load("gpt3-175b-megatron", {"network.bandwidth": "50 Gb/s"}))
>>> slower.step_time > result.step_time
True

`load` and `run` are what `sim run` does; `plan`, `compare`, `explain`, `sweep`, `goodput`, `cost`,
`collective`, `workers`, `replay` and `validate` are what the commands of their names do, by the
same words; `capture` records a function that trains a model in torch. `Scenario`, of names or of
objects, goes in; what comes out has `to_dict`, `to_frame` and `plot`.
Everything here is imported when it is first used, so that `import sim` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.capturing.capture import capture
    from sim.comparison.compare import compare
    from sim.comparison.workers import workers
    from sim.config.catalog import names
    from sim.config.errors import InputError
    from sim.engine.timeline import Timeline
    from sim.explanation.explain import explain
    from sim.hardware.cluster.topology import Topology
    from sim.hardware.device import Device
    from sim.hardware.stack import Stack
    from sim.model.transformer import Transformer
    from sim.parallel.plan import Plan
    from sim.plots.sliders import sliders
    from sim.reliability.cost import cost
    from sim.reliability.goodput import goodput
    from sim.results.collective_times import collective
    from sim.results.result import Result
    from sim.samples.run import run
    from sim.scenario.scenario import RecordedScenario, Scenario, Straggler, load
    from sim.search.plan import plan
    from sim.sweeps.answer import sweep
    from sim.traces.answer import replay
    from sim.validation.answer import validate

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
    "capture",
    "collective",
    "compare",
    "cost",
    "explain",
    "goodput",
    "load",
    "names",
    "plan",
    "replay",
    "run",
    "sliders",
    "sweep",
    "validate",
    "workers",
]

_HOMES = {
    "Device": "sim.hardware.device",
    "InputError": "sim.config.errors",
    "Plan": "sim.parallel.plan",
    "RecordedScenario": "sim.scenario.scenario",
    "Result": "sim.results.result",
    "Scenario": "sim.scenario.scenario",
    "Stack": "sim.hardware.stack",
    "Straggler": "sim.scenario.scenario",
    "Timeline": "sim.engine.timeline",
    "Topology": "sim.hardware.cluster.topology",
    "Transformer": "sim.model.transformer",
    "__version__": "sim.config.version:VERSION",
    "capture": "sim.capturing.capture",
    "collective": "sim.results.collective_times:collective",
    "compare": "sim.comparison.compare:compare",
    "cost": "sim.reliability.cost",
    "explain": "sim.explanation.explain",
    "goodput": "sim.reliability.goodput",
    "load": "sim.scenario.scenario",
    "names": "sim.config.catalog",
    "plan": "sim.search.plan",
    "replay": "sim.traces.answer",
    "run": "sim.samples.run",
    "sliders": "sim.plots.sliders",
    "sweep": "sim.sweeps.answer",
    "validate": "sim.validation.answer",
    "workers": "sim.comparison.workers",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sim' has no attribute {name!r}")
    home, _, own_name = _HOMES[name].partition(":")
    found = getattr(import_module(home), own_name or name)
    if callable(found) and not isinstance(found, type):
        found = import_module("sim.config.calls").checked_call(found, f"sim.{name}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
