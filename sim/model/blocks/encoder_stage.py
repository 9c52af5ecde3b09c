"""The block in front of a pipeline stage that begins in the middle of an encoder.

It computes biases of relative positions from a copy of their table (a few kilobytes, not counted).
"""

from dataclasses import replace

from sim.model.blocks import embedding
from sim.model.execution import Execution
from sim.model.operators import Operator

LAYER = False


def operators(run: Execution) -> tuple[Operator, ...]:
    """Return the block's operators on one rank, in forward order."""
    if run.shape.positions != "relative":
        return ()
    return (replace(embedding.positions(run), parameters=0.0, matrices=()),)
