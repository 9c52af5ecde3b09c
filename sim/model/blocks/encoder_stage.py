"""In front of the layers of a pipeline stage that goes on with an encoder: biases of relative
positions, from a copy of their table (a few kilobytes, which are not counted)."""

from dataclasses import replace

from sim.model.blocks import embedding
from sim.model.execution import Execution
from sim.model.operators import Operator

LAYER = False


def operators(run: Execution) -> tuple[Operator, ...]:
    """Its operators on one rank, in forward order."""
    if run.shape.positions != "relative":
        return ()
    return (replace(embedding.positions(run), parameters=0.0, matrices=()),)
