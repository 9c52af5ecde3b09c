"""The end of a multi-token prediction module: a norm of its own, the model's output layer once
more, and a loss (DeepSeek-AI 2024, arXiv 2412.19437, equation 23)."""

from dataclasses import replace

from sim.model.blocks import head
from sim.model.execution import Execution
from sim.model.operators import Operator

LAYER = False


def operators(run: Execution) -> tuple[Operator, ...]:
    """The head's, whose matrix counts there."""
    return tuple(
        replace(operator, parameters=0.0, matrices=()) if operator.name == head.LOGITS else operator
        for operator in head.operators(run)
    )
