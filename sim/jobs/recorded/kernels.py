"""Which kernels do torch's operators launch on a GPU, as `sim.hardware` times them?"""

from collections.abc import Callable
from dataclasses import replace
from math import ceil, prod
from typing import TypeVar

from sim.hardware.device import Device
from sim.jobs.recorded.recording import EventKind, Operator, Tensor
from sim.model.blocks.head import LONG_ROW, SOFTMAX, SOFTMAX_GRAD
from sim.model.convolution_kernels import POOLING, Shape, batch_norm, convolutions, together
from sim.model.fusion import Layout
from sim.model.kernels import TORCH_NORM, Attention, Gemm, Kernel, MemoryBound, Precision
from sim.model.recurrent_kernels import Recurrence

K = TypeVar("K", bound=Kernel)

_PRECISIONS: dict[str, Precision] = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
}
# Operators that launch several kernels, from aten/src/ATen/native/cuda: layer_norm_kernel.cu (one
# launch for the input gradient, two for gains and shifts), Embedding.cu (a sort of the indices,
# then three launches), Sort.cu, TensorTopK.cu, IndexKernel.cu and Indexing.cu (a sort, then the sum
# of equal indices).
_LAUNCHES = {
    "native_layer_norm_backward": 3,
    "_fused_rms_norm_backward": 3,
    "embedding_dense_backward": 5,
    "sort": 4,
    "topk": 2,
    "index_put_": 4,
    "index_put": 4,
}
_NORMS = {
    "native_layer_norm": TORCH_NORM[0],
    "native_layer_norm_backward": TORCH_NORM[1],
    "_fused_rms_norm": TORCH_NORM[0],
    "_fused_rms_norm_backward": TORCH_NORM[1],
}
# How many more times (log-)softmax reads its first tensor if rows are long.
_READS_AGAIN = {
    **dict.fromkeys(("_softmax", "_log_softmax"), SOFTMAX - 2),
    **dict.fromkeys(("_softmax_backward_data", "_log_softmax_backward_data"), SOFTMAX_GRAD - 3),
}
_WRITES_ONLY = ("fill_", "zero_", "zeros_like", "ones_like", "new_zeros", "zeros", "ones", "full")
# aten/src/ATen/native/cuda/Loss.cu: of each row, these operators read only the label's element.
_LABELS_ONLY = ("nll_loss_forward", "nll_loss_backward")
# Operators that allocate a tensor and do not write it.
UNSET = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided")
RECURRENT = ("_cudnn_rnn", "_cudnn_rnn_backward")
# Operators that return their operand.
_FREE = ("detach", "alias", "lift_fresh", "_unsafe_view", "_reshape_alias", "resize_", "set_")
_ROWS_ONLY = ("embedding", "index", "gather", "index_select")  # these read rows, not the table
# Limits of a launch over lists of tensors: the most tensors (by the number of lists), the most
# chunks, and the elements of a chunk (aten/src/ATen/native/cuda/MultiTensorApply.cuh:
# depth_to_max_tensors, depth_to_max_blocks, kChunkSize).
_LIST_TENSORS = (110, 64, 48, 36, 30)
_LIST_BLOCKS, _CHUNK = 320, 65536


def short_name(operator: Operator) -> str:
    """The name of an operator without its namespace.

    >>> short_name(Operator(name="aten.mm"))
    'mm'
    """
    return operator.name.partition(".")[2] or operator.name


def is_free(name: str, *, view: bool) -> bool:
    """Whether nothing runs on the device for an operator of this name."""
    return view or name in _FREE or name in UNSET


def is_shape(name: str, *, view: bool) -> bool:
    """Whether an operator of this name is a view that a script or a module asks for. "t" and
    "detach" do not count, as other operators call them internally."""
    return view and name not in _FREE and name != "t"


def is_product(name: str) -> bool:
    """Whether an operator of this name multiplies: products, convolutions, fused attention."""
    return name in _PRODUCTS or ("dot_product" in name and "attention" in name)


def has_kernel(name: str) -> bool:
    """Whether an operator of this name has its own kernels, whatever operators it calls."""
    known = (*_PRODUCTS, *_LAUNCHES, *_ROWS_ONLY, *_LABELS_ONLY)
    fused = "dot_product" in name and "attention" in name and not name.endswith("_math")
    inner = fused and name.startswith("_")
    return name in known or inner or name.startswith(("_foreach", "_fused"))


def of_own_use(name: str) -> bool:
    """Whether other operators call an operator of this name internally (copies and fills)."""
    return name.startswith("empty") or name in (*_WRITES_ONLY, "copy_", "clone", "_to_copy")


def kernel_of(operator: Operator) -> Kernel:
    """The kernel of an operator: a matrix product, fused attention, or a memory-bound kernel."""
    name = short_name(operator)
    if operator.name.startswith("inductor."):  # named after the operators that it fuses
        if name.startswith("tem_fused_flex_attention"):
            return _attention(operator, name)
        moved = operator.written + sum(tensor.bytes for tensor in operator.inputs)
        return MemoryBound(name=name, bytes=moved)
    if "dot_product" in name and "attention" in name:
        return _attention(operator, name)
    product = _PRODUCTS.get(name)
    if product is not None and len(operator.inputs) > 1:
        return product(operator, name)
    if "batch_norm" in name and len(operator.inputs[0].shape) > 2:
        image = operator.inputs[0]
        backward = name.endswith("_backward")
        return batch_norm(name, image.bytes, image.shape[1], _layout(operator, image), backward)
    moved, rate = _moved(operator, name), _NORMS.get(name, 1.0)
    return MemoryBound(name=name, bytes=moved, launches=launches(operator), rate=rate)


def run_on(kernel: K, device: Device) -> K:
    """The kernel as torch runs it: on a device without tf32, products run in fp32 instead."""
    if isinstance(kernel, Gemm) and kernel.precision == "tf32":
        known = "tf32" in device.peak.known
        return kernel if known else replace(kernel, precision="fp32")
    return kernel


def launches(operator: Operator) -> int:
    """How many kernels a memory-bound operator launches."""
    name = short_name(operator)
    if name.startswith(("_foreach", "_fused_adam", "_fused_sgd", "_amp_foreach")):
        return _launches_of_lists(operator)
    return _LAUNCHES.get(name, 1)


def tensors_of_a_list(operator: Operator) -> int:
    """The number of tensors in each list of an operator; without lists, the number of its
    inputs."""
    lists: int = operator.flags.get("lists", 1)
    return ceil(len(operator.inputs) / max(lists, 1))


def _launches_of_lists(operator: Operator) -> int:
    lists = operator.flags.get("lists", 1)
    depth = min(max(lists, 1), len(_LIST_TENSORS))
    each = operator.inputs[: tensors_of_a_list(operator)]
    chunks = sum(ceil(prod(tensor.shape) / _CHUNK) for tensor in each)
    return max(1, ceil(max(len(each) / _LIST_TENSORS[depth - 1], chunks / _LIST_BLOCKS)))


def _moved(operator: Operator, name: str) -> float:
    if name == "all_gather_copy_in":  # FSDP2 copies shards into the gathered buffer
        return 2 * sum(tensor.bytes for tensor in operator.inputs[:-1])
    read = (
        0.0
        if name in (*_WRITES_ONLY, *_LABELS_ONLY)
        else sum(tensor.bytes for tensor in operator.inputs)
    )
    if name == "max_pool2d_with_indices_backward":
        return POOLING[1] * (operator.inputs[0].bytes + operator.written)
    if name in _READS_AGAIN and _row(operator.inputs[0]) >= LONG_ROW:
        read += _READS_AGAIN[name] * operator.inputs[0].bytes
    if name in _ROWS_ONLY:
        read = min(read, 1.5 * operator.written)
    return read + operator.written


def _row(tensor: Tensor) -> float:
    """Bytes of a tensor along its last axis."""
    return tensor.width * tensor.shape[-1] if tensor.shape else tensor.width


def _precision(tensor: Tensor) -> Precision:
    return _PRECISIONS.get(tensor.dtype, "fp32")


def _product(operator: Operator, name: str) -> Gemm:
    """The product of mm or bmm (m x k, k x n). In operators with a sum (addmm) the summand comes
    first, and the last two operands are multiplied."""
    x, y = operator.inputs[-2:] if "add" in name else operator.inputs[:2]
    batch = x.shape[0] if len(x.shape) == 3 else 1
    m, k, n = x.shape[-2], x.shape[-1], y.shape[-1]
    precision = "tf32" if operator.flags.get("tf32") else _precision(x)
    return Gemm(name=name, m=m, n=n, k=k, batch=batch, precision=precision)


def _grouped(operator: Operator, name: str) -> Gemm:
    """A product of tokens (m, k) with the matrices (e, k, n) of experts, which have equally many
    tokens each. A product of two operands of two dimensions makes the gradients of the matrices."""
    x, y = operator.inputs[:2]
    (m, k), n = x.shape[-2:], y.shape[-1]
    forward = len(y.shape) == 3
    experts = y.shape[0] if forward else operator.outputs[0].shape[0]
    m, k = (m // experts, k) if forward else (m, k // experts)
    return Gemm(name=name, m=max(m, 1), n=n, k=max(k, 1), batch=experts, precision=_precision(x))


def _convolution(operator: Operator, name: str) -> Gemm | MemoryBound:
    """The product of a convolution; in a backward pass a product for each gradient. A depthwise
    convolution is memory-bound, as each channel has a filter of its own."""
    backward = name == "convolution_backward"
    if backward:
        result, image, weight = operator.inputs[:3]
    else:
        (image, weight), result = operator.inputs[:2], operator.outputs[0]
    larger = prod(result.shape[2:]) > prod(image.shape[2:])  # used if the flag is missing
    if operator.flags.get("transposed", larger):  # the reverse of a convolution
        result, image = image, result
    mask = operator.flags.get("output_mask", (False, True))[:2] if backward else ()
    groups = max(1, image.shape[1] // weight.shape[1])
    if groups == image.shape[1] > 1:
        moved = image.bytes + result.bytes + weight.bytes
        summed, often = 2.0 * prod(result.shape) * prod(weight.shape[1:]), max(sum(mask), 1)
        return MemoryBound(name=name, bytes=often * moved, launches=often, flops=often * summed)
    shape = Shape(
        images=image.shape[0],
        inputs=image.shape[1],
        outputs=weight.shape[0],
        read=prod(image.shape[1:]),
        written=weight.shape[0] * prod(result.shape[2:]),
        taps=prod(weight.shape[2:]),
        groups=groups,
    )
    precision: Precision = "tf32" if operator.flags.get("tf32") else _precision(weight)
    products = convolutions(name, shape, precision, _layout(operator, weight))
    done = [product for product, asked in zip(products[1:], mask, strict=False) if asked]
    return together(done) if done else products[0]


def _layout(operator: Operator, tensor: Tensor) -> Layout:
    """The layout of images: as recorded, or else "nhwc" for elements below 4 bytes."""
    return "nhwc" if operator.flags.get("channels_last", tensor.width < 4) else "nchw"


def _recurrent(operator: Operator, name: str) -> Recurrence:
    """A recurrent layer. Each layer and direction has a matrix for its input, a matrix for its
    state, and perhaps a matrix for its projection. The first two tensors of three dimensions are
    input and state."""
    matrices = [tensor.shape for tensor in operator.inputs if len(tensor.shape) == 2]
    data, state = [tensor for tensor in operator.inputs if len(tensor.shape) == 3][:2]
    directions = 2 if operator.flags.get("bidirectional") else 1
    cells, batch = state.shape[:2]
    each = len(matrices) // cells
    return Recurrence(
        name=name,
        m=batch,
        n=matrices[1][0],
        k=matrices[1][1],
        batch=directions,
        steps=prod(data.shape[:2]) // batch,
        layers=cells // directions,
        whole=tuple((rows, columns) for rows, columns in matrices[:: each * directions]),
        stepwise=tuple((rows, columns) for rows, columns in matrices[1:each]),
        backward=name.endswith("_backward"),
        precision="tf32" if operator.flags.get("tf32") else _precision(data),
    )


_PRODUCTS: dict[str, Callable[[Operator, str], Gemm | MemoryBound]] = {
    **dict.fromkeys(("mm", "addmm", "bmm", "baddbmm", "_scaled_mm"), _product),
    "_grouped_mm": _grouped,
    "convolution": _convolution,
    "convolution_backward": _convolution,
    **dict.fromkeys(RECURRENT, _recurrent),
}


def _attention(operator: Operator, name: str) -> Attention:
    backward = "backward" in name
    first = 1 if backward and "flex" not in name else 0  # the gradient comes first
    q, k, v = operator.inputs[first : first + 3]
    return Attention(
        name=name,
        batch=q.shape[0],
        heads=q.shape[1],
        kv_heads=k.shape[1],
        q=q.shape[2],
        kv=k.shape[2],
        head=q.shape[3],
        value_head=0 if v.shape[3] == q.shape[3] else v.shape[3],
        causal=bool(operator.flags.get("is_causal")),
        backward=backward,
        precision=_precision(q),
    )


_KINDS = {
    "allreduce": "all_reduce",
    "all_reduce": "all_reduce",
    "allgather": "all_gather",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "broadcast": "broadcast",
    # Calls with a root: the root's links carry as many bytes as in the collective given here.
    "reduce": "broadcast",
    "gather": "all_gather",
    "scatter": "all_gather",
    "alltoall": "all_to_all",
    "all_to_all": "all_to_all",
    "send": "send",
    "recv": "recv",
}
NAMESPACES = ("c10d", "_c10d_functional")


def call_of(operator: str) -> str | None:
    """The collective or message of an operator in `NAMESPACES`, given its name without namespace;
    None for other operators, such as barriers.

    >>> call_of("_allgather_base_"), call_of("barrier")
    ('all_gather', None)
    """
    plain = operator.strip("_")
    return next((kind for start, kind in _KINDS.items() if plain.startswith(start)), None)


def event_of(call: str) -> EventKind:
    """The kind of the event that records a collective or message."""
    return call if call in ("send", "recv") else "collective"  # type: ignore[return-value]
