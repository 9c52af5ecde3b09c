"""Predict how a training job runs on a cluster before anyone pays for the cluster.

>>> import sim
>>> result = sim.run("gpt3-175b-megatron")
>>> result.ranks, result.fits
(64, True)
>>> slower = sim.run(sim.load("gpt3-175b-megatron", {"network.bandwidth": "50 Gb/s"}))
>>> slower.step_time > result.step_time
True

`run` and `load` are what `sim run` does; `Scenario` and `Result` are what goes in and comes out.
Everything here is imported when it is first used, so that `import sim` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.engine.trace import Timeline
    from sim.errors import InputError
    from sim.hardware.device import Device
    from sim.hardware.stack import Stack
    from sim.hardware.topology import Topology
    from sim.library import names
    from sim.model.transformer import Transformer
    from sim.parallel.plan import Plan
    from sim.result import Result
    from sim.scenario import Scenario, Straggler, load
    from sim.simulate import simulate as run
    from sim.study.validate import validate

__all__ = [
    "Device",
    "InputError",
    "Plan",
    "Result",
    "Scenario",
    "Stack",
    "Straggler",
    "Timeline",
    "Topology",
    "Transformer",
    "load",
    "names",
    "run",
    "validate",
]

_HOMES = {
    "Device": "sim.hardware.device",
    "InputError": "sim.errors",
    "Plan": "sim.parallel.plan",
    "Result": "sim.result",
    "Scenario": "sim.scenario",
    "Stack": "sim.hardware.stack",
    "Straggler": "sim.scenario",
    "Timeline": "sim.engine.trace",
    "Topology": "sim.hardware.topology",
    "Transformer": "sim.model.transformer",
    "load": "sim.scenario",
    "names": "sim.library",
    "run": "sim.simulate:simulate",
    "validate": "sim.study.validate",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sim' has no attribute {name!r}")
    home, _, own_name = _HOMES[name].partition(":")
    found = globals()[name] = getattr(import_module(home), own_name or name)
    return found


def __dir__() -> list[str]:
    return __all__
