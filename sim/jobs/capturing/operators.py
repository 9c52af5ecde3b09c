"""How does a recording describe an operator of torch?"""

from typing import Any

from sim.jobs.recorded.kernels import RECURRENT
from sim.jobs.recorded.recording import Operator, Tensor, covered

_FLAGS = ("is_causal", "output_mask", "dropout_p", "bidirectional", "transposed")
# Operators that cuBLAS and cuDNN may compute in TF32; each library has its own flag.
_CONVOLUTIONS = ("convolution", "convolution_backward")
_CUDNN = (*_CONVOLUTIONS, *RECURRENT)
ROUNDED = ("mm", "bmm", "addmm", "baddbmm", *_CUDNN)

# Arguments that are written without being read.
_UNREAD = {"copy_": "self", "_foreach_copy_": "self"}


def described(func: Any, named: dict[str, Any], ins: list[Any], outs: list[Any]) -> Operator:
    """Describe a call of `func`: `ins` are the tensors among its arguments, `outs` its results."""
    changed = outs or _changed(func, named)
    ins = _read(ins, _listed(named.get(_UNREAD.get(_name(func), "out"))))
    flags: dict[str, Any] = {key: named[key] for key in _FLAGS if key in named}
    lists = sum(1 for value in named.values() if _is_list(value))
    if lists:
        flags["lists"] = lists
    name = _name(func)
    if name in ROUNDED and _wide(ins) and tf32()[name in _CUDNN]:
        flags["tf32"] = True
    if name in _CONVOLUTIONS or "batch_norm" in name:
        flags["channels_last"] = _channels_last(ins[name == "convolution_backward"])
    return Operator(
        name=f"{func.namespace}.{_name(func)}",
        inputs=tuple(map(tensor_of, ins)),
        outputs=tuple(map(tensor_of, outs)),
        written=sum(tensor_of(tensor).bytes for tensor in changed),
        flags=flags,
    )


def _read(ins: list[Any], unread: list[Any]) -> list[Any]:
    """Leave out each of the `unread` tensors once: a written tensor may also be read."""
    left = {id(tensor) for tensor in unread}
    read = []
    for tensor in reversed(ins):  # `out` is the last argument
        if id(tensor) in left:
            left.remove(id(tensor))
        else:
            read.append(tensor)
    return read[::-1]


def _name(func: Any) -> str:
    return str(func._overloadpacket.__name__)


def tf32() -> tuple[bool, bool]:
    """Whether fp32 operands may be rounded to TF32. The first flag is for products (`allow_tf32`,
    `set_float32_matmul_precision`), the second for convolutions and recurrent layers (cuDNN's
    `allow_tf32`, which torch sets by default)."""
    import torch

    return bool(torch.backends.cuda.matmul.allow_tf32), bool(torch.backends.cudnn.allow_tf32)


def _channels_last(image: Any) -> bool:
    import torch

    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    last = formats.get(image.dim())
    return last is not None and bool(image.is_contiguous(memory_format=last))


def _wide(ins: list[Any]) -> bool:
    numbers = (tensor for tensor in ins if tensor.is_floating_point())
    return all(str(tensor.dtype) == "torch.float32" for tensor in numbers)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and hasattr(value[0], "untyped_storage")


def _changed(func: Any, named: dict[str, Any]) -> list[Any]:
    """The arguments that an operator writes."""
    found: list[Any] = []
    for argument in func._schema.arguments:
        if argument.alias_info and argument.alias_info.is_write:
            found += _listed(named.get(argument.name))
    return [tensor for tensor in found if hasattr(tensor, "untyped_storage")]


def tensor_of(tensor: Any) -> Tensor:
    """The description of a tensor in a recording."""
    shape = tuple(int(n) for n in tensor.shape)
    return Tensor(
        dtype=str(tensor.dtype).removeprefix("torch."),
        width=float(tensor.element_size()),
        shape=shape,
        elements=covered(shape, tensor.stride()),
    )
