"""A layer of a convolutional network: a convolution and the operators that follow it."""

from sim.model import convolution
from sim.model.execution import Execution
from sim.model.network import own_layer
from sim.model.operators import Operator


def operators(run: Execution) -> tuple[Operator, ...]:
    """Return the layer as one operator."""
    layer, model = own_layer(run.model, run.layer, "convolutional")
    return (convolution.operator(layer, model, run),)
