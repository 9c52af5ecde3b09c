"""The end of a multi-token prediction module: its own norm, another use of the model's output
layer, and a loss (DeepSeek-AI 2024, arXiv 2412.19437, equation 23)."""

from dataclasses import replace

from sim.model.blocks import head
from sim.model.execution import Execution
from sim.model.operators import Operator

LAYER = False


def operators(run: Execution) -> tuple[Operator, ...]:
    """Return the head's operators; the output layer's matrix counts in the head alone."""
    return tuple(
        replace(operator, parameters=0.0, matrices=()) if operator.name == head.LOGITS else operator
        for operator in head.operators(run)
    )
