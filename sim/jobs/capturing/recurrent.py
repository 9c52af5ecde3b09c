"""How do recurrent layers run on fake tensors? As a single operator for each pass, as with cuDNN.

Without cuDNN, torch runs several operators for each time step. Here `lstm`, `gru`, `rnn_tanh` and
`rnn_relu` call `_cudnn_rnn` as torch does on a GPU (aten/src/ATen/native/cudnn/RNN.cpp,
`_cudnn_impl`; autocast casts to fp16, aten/src/ATen/cudnn/AutocastRNN.cpp). Weights are assumed to
lie in a single buffer, where torch's modules put them.
"""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from sim.config.errors import InputError
from sim.jobs.capturing.patches import Patches

# cuDNN's numbers (cudnnRNNMode_t).
_MODES = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}
# How many numbers a layer keeps beside its output, for each unit and time step: the gates, and the
# cell state (LSTM) or the part of the new gate that comes from the hidden state (GRU).
_KEPT = {0: 0, 1: 0, 2: 5, 3: 4}
_NOTE = (
    "recurrent layers are recorded as cuDNN's standard algorithm: persistent kernels, which torch "
    "uses for some layers in fp16, are faster; the host's time is an upper bound (each launch is "
    "charged like an operator); the memory kept for the backward pass is a lower bound"
)


def install(torch: Any, patches: Patches, note: Callable[[str], int]) -> None:
    """Patch the functions of `torch`, and give the shapes of cuDNN's operators."""
    library = torch.library.Library("aten", "IMPL", "Meta")
    patches.also(library._destroy)
    with warnings.catch_warnings(action="ignore"):  # torch's meta kernel keeps no reserve space
        library.impl("_cudnn_rnn", partial(_forward, torch), allow_override=True)
        library.impl("_cudnn_rnn_backward", _backward, allow_override=True)
    patches.set(torch.nn.RNNBase, "flatten_parameters", lambda _: None)
    for name, mode in _MODES.items():
        function = _function(torch, getattr(torch, name), mode, note)
        for owner in (torch, torch._VF):
            patches.set(owner, name, function)


def _function(torch: Any, usual: Any, mode: int, note: Callable[[str], int]) -> Any:
    def layers(input: Any, *args: Any, **kwargs: Any) -> Any:
        cudnn = torch._C._get_cudnn_enabled() and input.device.type == "cuda" and input.numel()
        if not cudnn or kwargs:
            return usual(input, *args, **kwargs)
        if not isinstance(args[2], bool):  # arguments for packed sequences
            fault = "the cost of recurrent layers on packed sequences is unknown"
            raise InputError("sim capture", fault, "give them padded sequences")
        note(_NOTE)
        states, weights, biases, count, dropout, train, both, batch_first = args
        hx, cx = states if mode == _MODES["lstm"] else (states, None)
        width, projected = (hx if cx is None else cx).shape[-1], hx.shape[-1]
        projection = projected if projected != width else 0
        if torch.is_autocast_enabled("cuda"):
            input, hx, *weights = (tensor.half() for tensor in (input, hx, *weights))
            cx = None if cx is None else cx.half()
        out, hy, cy, *_ = torch.ops.aten._cudnn_rnn(
            input, weights, (4 if biases else 2) + bool(projection), input.new_empty(0), hx, cx,
            mode, width, projection, count, batch_first, dropout, train, both, [], None,
        )  # fmt: skip
        return (out, hy) if cx is None else (out, hy, cy)

    return layers


def _forward(
    torch: Any, input: Any, weight: Any, stride: int, buffer: Any, hx: Any, cx: Any, mode: int,
    hidden: int, projection: int, layers: int, batch_first: bool, dropout: float, train: bool,
    both: bool, *_: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """Return the output, the last states, and the reserve space, which the backward pass reads. The
    reserve's size is a lower bound: cuDNN tells the true size only on a device
    (cudnnGetRNNTempSpaceSizes)."""
    directions = 1 + both
    out = input.new_empty(*input.shape[:2], directions * hx.shape[-1])
    each = input.shape[0] * input.shape[1] * directions
    kept = each * (layers * _KEPT[mode] * hidden + (layers - 1) * hx.shape[-1]) if train else 0
    reserve = input.new_empty(kept * input.element_size(), dtype=torch.uint8)
    cy = hx.new_empty(0) if cx is None else cx.new_empty(cx.shape)
    return out, hx.new_empty(hx.shape), cy, reserve, buffer


def _backward(
    input: Any, weight: Any, stride: int, buffer: Any, hx: Any, cx: Any, *rest: Any
) -> tuple[Any, ...]:
    """Return the requested gradients of input, states and weights; `rest[10]` is `train`."""
    if not rest[10]:
        raise RuntimeError("cudnn RNN backward can only be called in training mode")
    made = [
        tensor.new_empty(tensor.shape) if asked and tensor is not None else None
        for tensor, asked in zip((input, hx, cx), rest[-1], strict=False)
    ]
    return *made, [tensor.new_empty(tensor.shape) for tensor in weight] if rest[-1][3] else []
