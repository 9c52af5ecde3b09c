"""A layer with the times and sizes of a profile (`sim.model.profiled`).

A profiler times the backward pass as a whole. Where a schedule splits the backward pass, all of its
time counts in the half that makes the input's gradient.
"""

from sim.model.execution import Execution
from sim.model.kernels import Timed
from sim.model.network import own_layer
from sim.model.operators import Operator


def operators(run: Execution) -> tuple[Operator, ...]:
    """Return the layer as a single operator, which keeps its output."""
    layer, profile = own_layer(run.model, run.layer, "profiled")
    share = run.microbatch / profile.batch
    return (
        Operator(
            name=layer.name,
            forward=(Timed(name=layer.name, seconds=layer.forward * share),),
            input_gradient=(Timed(name=f"{layer.name} grad", seconds=layer.backward * share),),
            inputs=layer.taken * share,
            saved=layer.activation * share,
            made=layer.activation * share,
            parameters=layer.parameters / profile.width,
        ),
    )
