"""How busy the links are in a step, on the drawing of its cluster."""

from collections.abc import Sequence

from sim.config.errors import InputError
from sim.engine.link_loads import LinkLoad
from sim.interface.plots import topology
from sim.interface.plots.picture import Figure
from sim.results.result import Result


def figure(result: Result) -> Figure:
    """Cables in the colour of the busiest link of their kind. Raises `InputError` for a result
    that does not say what was simulated."""
    if result.setup is None:
        fault = "does not say what was simulated"
        raise InputError(result.scenario, fault, "run its scenario again")
    return topology.figure(result.setup.machine.topology, busiest(result.links))


def busiest(loads: Sequence[LinkLoad]) -> dict[str, float]:
    """The share of the time of the busiest link of each kind."""
    shares: dict[str, float] = {}
    for load in loads:
        shares[load.kind] = max(shares.get(load.kind, 0.0), load.busy)
    return shares
