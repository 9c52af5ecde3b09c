"""The files that a scenario names, loaded with its changes."""

from typing import Any

from sim.config import catalog
from sim.config.checked import altered
from sim.config.errors import InputError
from sim.hardware import stack as stacks
from sim.hardware.cluster import topology as topologies
from sim.hardware.cluster.topology import Topology
from sim.model import reading
from sim.model.model import Model
from sim.scenario.scenario import BaseScenario
from sim.scenario.settings import changed


def load_document(
    scenario: BaseScenario, file: str, folder: str, name: str
) -> tuple[dict[str, Any], str]:
    """A file that a scenario names, with the scenario's changes, and how errors name it."""
    path = catalog.find(folder, name, where=f"{scenario.name}, {file}")
    changes = scenario.changes(file)
    place = catalog.place(path, changed=bool(changes))
    read = reading.document(path) if folder == "models" else catalog.document(folder, path)
    return changed(read, changes, place), place


def load_model(scenario: BaseScenario) -> Model:
    """The model of a scenario with its changes."""
    changes = scenario.changes("model")
    if not isinstance(scenario.model, str):
        model = altered(scenario.model, changes, f"{scenario.name}, model")
    else:
        model = reading.model_of(*load_document(scenario, "model", "models", scenario.model))
    return reading.settled(model, changes)


def load_stack(scenario: BaseScenario, stack: str | stacks.Stack) -> stacks.Stack:
    """A stack with the changes of a scenario."""
    if not isinstance(stack, str):
        return altered(stack, scenario.changes("stack"), f"{scenario.name}, stack")
    document, place = load_document(scenario, "stack", "topologies/stacks", stack)
    return catalog.validate(document, stacks.Stack, place)


def load_topology(scenario: BaseScenario) -> Topology:
    """The cluster of a scenario, with as many GPUs as its own file says."""
    overrides, where = scenario.changes("topology"), f"{scenario.name}, topology"
    if scenario.gpus and "gpus" in overrides:
        fault = f"topology.gpus, but gpus = {scenario.gpus} says how many are used"
        raise InputError(f"{scenario.name}, change", fault, "set gpus")
    overrides |= {f"device.{key}": value for key, value in scenario.changes("device").items()}
    if not isinstance(scenario.topology, str):
        return altered(scenario.topology, overrides, where)
    return topologies.load(scenario.topology, overrides, where=where)
