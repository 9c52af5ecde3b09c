"""What do autograd and optimizers have to do differently with fake tensors?

Without a GPU, torch computes attention by several products. `fused_attention` runs the fused kernel
that torch would choose on a GPU: in torch's order, the first kernel that supports the call and is
switched on (`torch.nn.attention.sdpa_kernel`). Source:
aten/src/ATen/native/transformers/cuda/sdp_utils.cpp (`can_use_flash_attention`,
`can_use_mem_efficient_attention`, `can_use_cudnn_attention`).
"""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from sim.config.dataclass import dataclass
from sim.jobs.capturing.log import Log
from sim.jobs.capturing.patches import Patches


@dataclass(frozen=True, slots=True)
class _Asked:
    """A call of attention. The methods that are named like kernels run their kernel, or return None
    if the kernel does not support the call."""

    torch: Any
    q: Any
    k: Any
    v: Any
    mask: Any
    dropout: float
    causal: bool
    scale: float | None

    @property
    def half(self) -> bool:
        return self.q.dtype in (self.torch.float16, self.torch.bfloat16)

    @property
    def grouped(self) -> bool:
        return bool(self.q.size(-3) != self.k.size(-3))

    def check(self, *, grouped: bool) -> None:
        """Refuse arguments that torch refuses. With `grouped`, queries may have more heads than
        keys."""
        kinds = self.q.dtype, self.k.dtype, self.v.dtype
        if len({*kinds}) > 1:
            raise RuntimeError(f"queries, keys and values have unlike dtypes: {kinds}")
        if self.grouped and not grouped:
            raise RuntimeError("queries and keys have different numbers of heads: set enable_gqa")

    def flash(self) -> Any:
        if self.mask is not None or not self.half or self.q.shape[-1] != self.v.shape[-1]:
            return None
        return self.torch.ops.aten._scaled_dot_product_flash_attention(
            self.q, self.k, self.v, self.dropout, self.causal, False, scale=self.scale
        )[0]

    def efficient(self) -> Any:
        if self.grouped:
            return None
        mask = self.mask
        if mask is not None:
            mask = mask.to(self.q.dtype).expand(*self.q.shape[:-1], self.k.size(-2))
        grad = self.torch.is_grad_enabled()
        return self.torch.ops.aten._scaled_dot_product_efficient_attention(
            self.q, self.k, self.v, mask, grad, self.dropout, self.causal, scale=self.scale
        )[0]

    def cudnn(self) -> Any:
        wide = max(self.q.shape[-1], self.v.shape[-1])
        if not self.half or wide > 128 or wide % 8:
            return None
        grad = self.torch.is_grad_enabled()
        return self.torch.ops.aten._scaled_dot_product_cudnn_attention(
            self.q, self.k, self.v, self.mask, grad, self.dropout, self.causal, False,
            scale=self.scale,
        )[0]  # fmt: skip

    def math(self) -> Any:
        return self.torch.ops.aten._scaled_dot_product_attention_math(
            self.q, self.k, self.v, self.mask, self.dropout, self.causal, None,
            scale=self.scale, enable_gqa=self.grouped,
        )[0]  # fmt: skip


_KERNELS: dict[str, Callable[[_Asked], Any]] = {
    "FLASH_ATTENTION": _Asked.flash,
    "EFFICIENT_ATTENTION": _Asked.efficient,
    "CUDNN_ATTENTION": _Asked.cudnn,
    "MATH": _Asked.math,
}


def fused_attention(torch: Any) -> Any:
    """A `scaled_dot_product_attention` that runs the kernel that CUDA would choose. Like torch's
    own function, it raises `RuntimeError` if no kernel can do the call. Its kernels run below
    autocast, which would otherwise cast the operators of the composed kernel again."""
    below = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)

    def scaled_dot_product_attention(
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        q, k, v, mask = (_autocast(torch, each) for each in (query, key, value, attn_mask))
        asked = _Asked(torch, q, k, v, mask, dropout_p, is_causal, scale)
        asked.check(grouped=enable_gqa)
        with torch._C._ExcludeDispatchKeyGuard(below):
            for backend in torch.nn.attention._cur_sdpa_kernel_backends(with_priority=True):
                found = _KERNELS[backend.name](asked) if backend.name in _KERNELS else None
                if found is not None:
                    return found
        raise RuntimeError("No available kernel. Aborting execution.")

    return scaled_dot_product_attention


def _autocast(torch: Any, tensor: Any) -> Any:
    """Cast an argument of attention as autocast does, whose list `lower_precision_fp` has attention
    (aten/src/ATen/autocast_mode.h; `is_eligible` leaves out doubles and masks of bools)."""
    if tensor is None or not torch.is_autocast_enabled("cuda"):
        return tensor
    wide = tensor.dtype == torch.float64 or not tensor.is_floating_point()
    if wide or tensor.device.type != "cuda":
        return tensor
    return tensor.to(torch.get_autocast_dtype("cuda"))


def without_threads(torch: Any, patches: Patches) -> None:
    """Let backward passes run on the thread that calls them.

    In the first backward pass of a process, autograd starts a thread for each device
    (torch/csrc/autograd/engine.cpp, `start_device_threads`). A process with such threads cannot be
    forked. So a first backward pass runs here, before there is a device.
    """
    torch.ones(1, requires_grad=True).sum().backward()
    before = torch._C._is_multithreading_enabled()
    torch._C._set_multithreading_enabled(False)
    patches.also(lambda: torch._C._set_multithreading_enabled(before))


def install(torch: Any, patches: Patches, log: Log, stream: Any) -> None:
    """Patch torch so that the log sees phases of the step and resized storages, and so that
    optimizers and attention run as on a GPU."""
    import torch.utils._foreach_utils as foreach
    from torch._subclasses import fake_tensor
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
    from torch.optim import optimizer

    engine, resize = torch.autograd.Variable._execution_engine, torch.UntypedStorage.resize_

    def backward(*args: Any, **kwargs: Any) -> Any:
        before, log.phase = log.phase, "backward"
        try:
            return engine.run_backward(*args, **kwargs)
        finally:
            log.phase = before
            log.backward_ended()

    def resized(storage: Any, size: int) -> Any:
        found = resize(storage, size)
        log.track(storage, stream(), -1, resized=True)
        return found

    # Every backward pass calls this engine, even Megatron's (core/pipeline_parallel/schedules.py).
    ways = SimpleNamespace(
        run_backward=backward,
        queue_callback=engine.queue_callback,
        is_checkpoint_valid=engine.is_checkpoint_valid,
    )
    patches.set(torch.autograd.Variable, "_execution_engine", ways)
    patches.set(torch.UntypedStorage, "resize_", resized)
    patches.set(torch.nn.functional, "scaled_dot_product_attention", fused_attention(torch))
    patches.set(FakeTensorMode, "avoid_device_init", property(lambda self: True))
    patches.set(FakeTensorMode, "ignore_compile_internals", classmethod(lambda cls: True))
    patches.set(fake_tensor.log, "disabled", True)  # `refused` reports the errors
    patches.set(fake_tensor, "init_gpu_context", lambda device: None)  # torch 2.11 always calls it
    # Otherwise AdamW and clipping would loop over single tensors.
    for module in (foreach, optimizer):
        module._foreach_supported_types.append(FakeTensor)
        patches.also(partial(module._foreach_supported_types.remove, FakeTensor))
    # swap_tensors refuses tensors with weak references, which fake parameters always have.
    patches.set(torch.utils, "weakref", SimpleNamespace(getweakrefs=lambda tensor: []))
