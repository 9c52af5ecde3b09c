"""What do autograd and optimizers have to do differently where tensors are fake?"""

from functools import partial
from types import SimpleNamespace
from typing import Any

from sim.jobs.capturing.attention import fused_attention
from sim.jobs.capturing.log import Log
from sim.jobs.capturing.patches import Patches


def without_threads(torch: Any, patches: Patches) -> None:
    """Backward passes run on the thread that asks for them.

    The engine makes a thread for each device with the first backward pass of a process
    (torch/csrc/autograd/engine.cpp, `start_device_threads`). The process cannot be forked
    afterwards. So the first pass is made here, while there is no device.
    """
    torch.ones(1, requires_grad=True).sum().backward()
    before = torch._C._is_multithreading_enabled()
    torch._C._set_multithreading_enabled(False)
    patches.also(lambda: torch._C._set_multithreading_enabled(before))


def install(torch: Any, patches: Patches, log: Log, stream: Any) -> None:
    """Phases of the step, storages that are resized, fused optimizers and attention."""
    import torch.utils._foreach_utils as foreach
    from torch._subclasses import fake_tensor
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
    from torch.optim import optimizer

    run, resize = torch.autograd._engine_run_backward, torch.UntypedStorage.resize_

    def backward(*args: Any, **kwargs: Any) -> Any:
        before, log.phase = log.phase, "backward"
        try:
            return run(*args, **kwargs)
        finally:
            log.phase, log.passed_back = before, True

    def resized(storage: Any, size: int) -> Any:
        found = resize(storage, size)
        log.track(storage, stream(), -1, resized=True)
        return found

    for module in (torch.autograd, torch.autograd.graph, torch._tensor):
        if hasattr(module, "_engine_run_backward"):
            patches.set(module, "_engine_run_backward", backward)
    patches.set(torch.UntypedStorage, "resize_", resized)
    patches.set(torch.nn.functional, "scaled_dot_product_attention", fused_attention(torch))
    patches.set(FakeTensorMode, "avoid_device_init", property(lambda self: True))
    patches.set(FakeTensorMode, "ignore_compile_internals", classmethod(lambda cls: True))
    patches.set(fake_tensor, "init_gpu_context", lambda device: None)  # torch 2.11 asks always
    # Else AdamW and clipping take their loops over single tensors.
    for module in (foreach, optimizer):
        module._foreach_supported_types.append(FakeTensor)
        patches.also(partial(module._foreach_supported_types.remove, FakeTensor))
    # swap_tensors refuses tensors with weak references, which fake parameters always have.
    patches.set(torch.utils, "weakref", SimpleNamespace(getweakrefs=lambda tensor: []))
