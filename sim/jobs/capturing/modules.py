"""How are fake tensors of modules moved, copied and read?

On a real GPU `module.to("cuda")` puts new content into the same parameter. Optimizers, hooks and
modules that share the parameter still refer to it. The content of a fake tensor cannot be put into
a real tensor, so torch makes a new parameter. Here the old parameter takes over the new parameter's
content, and so remains valid.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any
from weakref import ref

from sim.jobs.capturing import checkpoints
from sim.jobs.capturing.patches import Patches


def install(torch: Any, patches: Patches, told: Callable[[], None]) -> None:
    """Patch moves, copies, checkpoints and reads; `told` is called at each save of tensors without
    content."""
    _moves(torch, patches)
    _copies(torch, patches)
    checkpoints.install(torch, patches, told)
    _reads(torch, patches)
    _addresses(torch, patches)


def _moves(torch: Any, patches: Patches) -> None:
    """Patch moves of modules: `to`, `cuda`, `half`, `to_empty` and others all call `_apply`."""
    from torch._subclasses.fake_tensor import FakeTensor

    apply, usual = torch.nn.Module._apply, torch._C.TensorBase.data
    swap = torch.utils.swap_tensors

    def put(tensor: Any, new: Any) -> None:
        """Do `weight.data = ...`, with which FSDP1 and scripts move single parameters."""
        fake, before = isinstance(new, FakeTensor), getattr(tensor, "fake_device", None)
        if not fake or before == new.fake_device:
            usual.__set__(tensor, new)
            return
        moved = new.detach()
        if isinstance(tensor, torch.nn.Parameter):
            moved = torch.nn.Parameter(moved)
        _become(torch, tensor, moved.requires_grad_(tensor.requires_grad))

    def swapped(old: Any, new: Any) -> None:
        """Swap two tensors, even if a graph has saved them (weight_norm): torch refuses such
        weights."""
        if isinstance(old, FakeTensor):
            _become(torch, old, new)
        else:
            swap(old, new)

    def kept(module: Any, *args: Any, **kwargs: Any) -> Any:
        before = {
            name: (weight, dict(weight.__dict__))
            for name, weight in module._parameters.items()
            if weight is not None
        }
        result = apply(module, *args, **kwargs)
        for name, (old, said) in before.items():
            new = module._parameters[name]
            if new is not old:
                _become(torch, old, new)
                module._parameters[name] = old
            else:  # torch swaps fake tensors together with attributes that scripts have set
                old.__dict__ = {**said, **old.__dict__}
        return result

    patches.set(torch.utils, "swap_tensors", swapped)
    patches.set(torch.nn.Module, "_apply", kept)
    patches.set(torch.Tensor, "data", property(lambda tensor: usual.__get__(tensor), put))


def _become(torch: Any, old: Any, new: Any) -> None:
    """Let references to the old tensor refer to the content of the new tensor."""
    hooks = old._backward_hooks
    old.__class__, new.__class__ = new.__class__, old.__class__
    old.__dict__, new.__dict__ = {**old.__dict__, **new.__dict__}, {}
    torch._C._swap_tensor_impl(old, new)
    if hooks is not None:
        old._backward_hooks = hooks


def _copies(torch: Any, patches: Patches) -> None:
    """Patch deep copies of tensors: torch's would also copy the mode of a fake tensor."""
    from torch._subclasses.fake_tensor import FakeTensor

    usual = torch.Tensor.__deepcopy__

    def copied(tensor: Any, memo: dict[int, Any]) -> Any:
        if not isinstance(tensor, FakeTensor) or not tensor.is_leaf or id(tensor) in memo:
            return usual(tensor, memo)
        with torch.no_grad():
            memo[id(tensor)] = new = tensor.clone()
        kept = {key: value for key, value in tensor.__dict__.items() if key not in new.__dict__}
        new.__dict__ |= deepcopy(kept, memo)
        new.requires_grad_(tensor.requires_grad)
        if tensor.grad is not None:
            new.grad = copied(tensor.grad, memo)
        return new

    patches.set(torch.Tensor, "__deepcopy__", copied)


def _reads(torch: Any, patches: Patches) -> None:
    """Patch reads on the host: unknown content is made up, as it is for `item()`."""
    from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

    usual, written = torch.Tensor.numpy, torch.Tensor.__format__

    def made_up(tensor: Any) -> Any:
        value = 0 if tensor.dtype == torch.bool else 1
        with unset_fake_temporarily():
            return torch.full(tuple(tensor.shape), value, dtype=tensor.dtype)

    def numpy(tensor: Any, *, force: bool = False) -> Any:
        local = tensor.detach().cpu() if force else tensor
        unknown = isinstance(local, FakeTensor) and local.device.type == "cpu"
        with unset_fake_temporarily():  # otherwise a real tensor would give unwritten memory
            return usual(made_up(local) if unknown else local, force=force)

    def formatted(tensor: Any, how: str) -> str:
        single = isinstance(tensor, FakeTensor) and not tensor.dim()
        return format(tensor.item(), how) if single else str(written(tensor, how))

    patches.set(torch.Tensor, "numpy", numpy)
    patches.set(torch.Tensor, "__format__", formatted)


def _addresses(torch: Any, patches: Patches) -> None:
    """Give storages without memory different addresses, by which scripts tell weights apart."""
    tensor, storage = torch.Tensor.data_ptr, torch.UntypedStorage.data_ptr
    known: dict[int, tuple[Any, int, int]] = {}
    free = [1 << 40]

    def begins(of: Any) -> Any:
        size, found = int(of.nbytes()), known.get(id(of))
        if found is None or found[0]() is not of or found[1] != size:
            free[0] += -(-size // 512) * 512
            known[id(of)] = found = ref(of), size, free[0]
            free[0] += 512
        return found[2] - size if size else 0

    def of_storage(of: Any) -> Any:
        return begins(of) if of.device.type == "meta" else storage(of)

    def of_tensor(of: Any) -> Any:
        if type(of) not in (FakeTensor, torch.nn.Parameter, torch.Tensor):
            return tensor(of)
        whole = of.untyped_storage()
        if whole.device.type != "meta" or not of.numel():
            return tensor(of)
        return begins(whole) + of.storage_offset() * of.element_size()

    from torch._subclasses.fake_tensor import FakeTensor

    patches.set(torch.UntypedStorage, "data_ptr", of_storage)
    patches.set(torch.Tensor, "data_ptr", of_tensor)


def install_batch_norm(torch: Any, patches: Patches, wait: Callable[[], None]) -> None:
    """Patch torch's SyncBatchNorm, whose CUDA operators have no shapes for fake tensors.

    Its statistics are fp32 numbers for each channel (aten/src/ATen/native/cuda/Normalization.cu).
    Ranks exchange their numbers of elements. A mask, for which the host waits, leaves out ranks
    without elements (torch/nn/modules/_functions.py). Here every rank has elements.
    """
    library = torch.library.Library("aten", "IMPL", "Meta")
    patches.also(library._destroy)
    for name, shaped in _shapes(torch).items():
        library.impl(name, shaped)
    function = import_module("torch.nn.modules._functions").SyncBatchNorm
    forward = function.forward

    def waited(*args: Any) -> Any:
        wait()
        with _unmasked(torch):
            return forward(*args)

    patches.set(function, "forward", staticmethod(waited))


@contextmanager
def _unmasked(torch: Any) -> Iterator[None]:
    """Pretend that a CUDA graph is being captured, so that torch does not read the mask."""
    usual = torch.cuda.is_current_stream_capturing
    torch.cuda.is_current_stream_capturing = lambda: True
    try:
        yield
    finally:
        torch.cuda.is_current_stream_capturing = usual


def _shapes(torch: Any) -> dict[str, Callable[..., Any]]:
    """Functions that make the operators' results; channels are the second dimension of inputs."""

    def channels(tensor: Any, number: int) -> tuple[Any, ...]:
        return tuple(tensor.new_empty(tensor.shape[1], dtype=torch.float32) for _ in range(number))

    return {
        "batch_norm_stats": lambda tensor, eps: channels(tensor, 2),
        "batch_norm_gather_stats_with_counts": lambda tensor, *_: channels(tensor, 2),
        "batch_norm_elemt": lambda tensor, *_: torch.empty_like(tensor),
        "batch_norm_backward_reduce": lambda grad, *_: channels(grad, 4),
        "batch_norm_backward_elemt": lambda grad, *_: torch.empty_like(grad),
    }


def install_transformers(
    patches: Patches, known: Callable[[Any], bool], told: Callable[[str], object]
) -> None:
    """Patch how Hugging Face's transformers make masks (masking_utils.py).

    A mask of ones is left out, so that attention runs the fused causal kernel. A mask that is a
    fake tensor would stay (`is_tracing`). Here transformers looks at the mask if its content is
    `known`; otherwise the mask stays, and a note is `told`. Sequences are assumed not to be packed
    (`find_packed_sequence_indices`).
    """

    def change(module: ModuleType) -> None:
        if hasattr(module, "find_packed_sequence_indices"):
            patches.set(module, "find_packed_sequence_indices", lambda *_, **__: None)
        if (usual := getattr(module, "is_tracing", None)) is not None:
            patches.set(module, "is_tracing", partial(_tracing, usual, known, told))

    patches.when_imported("transformers.masking_utils", change)


_STAYS = (
    "the attention mask stays, because its values are unknown; on a GPU transformers leaves out a "
    "mask of ones: if nothing is padded, leave attention_mask out of the batch"
)


def _tracing(
    usual: Any, known: Callable[[Any], bool], told: Callable[[str], object], tensor: Any = None
) -> bool:
    """Whether transformers must not read a tensor's values."""
    if usual() or tensor is None or not usual(tensor):
        return bool(usual(tensor))
    if known(tensor):
        return False
    told(_STAYS)
    return True
