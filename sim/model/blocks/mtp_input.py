"""The operators in front of the layer of a multi-token prediction module.

The embedding of the following token and the hidden state are normalised, joined and projected to
the width of the model (DeepSeek-AI 2024, arXiv 2412.19437, equation 21). The module uses the
model's embedding. The projection is column-parallel, and its output is gathered (Megatron-LM,
megatron/core/transformer/multi_token_prediction.py).
"""

from sim.config.errors import InputError
from sim.model.blocks import embedding
from sim.model.execution import Execution
from sim.model.kernels import MemoryBound
from sim.model.operators import Operator, normalise, tensor_collective
from sim.model.tensor_parallel import column_linear

LAYER = False


def operators(run: Execution) -> tuple[Operator, ...]:
    """Return the block's operators on one rank, in forward order."""
    return (
        embedding.looked_up_again(run),
        normalise(run, "mtp embedding norm", run.local, residual=False),
        normalise(run, "mtp norm", run.local),
        _join(run),
        *_project(run),
    )


def _join(run: Execution) -> Operator:
    """Return the copy of embedding and hidden state into one tensor, which the projection keeps."""
    copy = MemoryBound(name="mtp join", bytes=float(4 * run.local * run.model.hidden * run.width))
    return Operator(name="mtp join", forward=(copy,), input_gradient=(copy,))


def _project(run: Execution) -> tuple[Operator, ...]:
    """Return the projection 2 hidden -> hidden, divided by columns, and the gather of its output.
    Backward each rank takes its columns of the gradient, which sequence parallelism has to gather
    first."""
    hidden = run.model.hidden
    if hidden % run.tp:
        raise InputError("plan", f"tp = {run.tp} does not divide hidden = {hidden}", "lower tp")
    linear = column_linear(run, "mtp projection", (hidden // run.tp,), inputs=2 * hidden)
    if run.tp == 1:
        return (linear,)
    name, elements = "mtp projection gather", run.rows * hidden
    gather = tensor_collective(run, "all_gather", name, elements)
    back = tensor_collective(run, "all_gather", f"{name} grad", elements)
    scattered = run.sharding.sequence_parallel
    return (
        linear,
        Operator(name=name, forward=(gather,), input_gradient=(back,) if scattered else ()),
    )
