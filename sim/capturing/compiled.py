"""`torch.compile` where the GPU is not there: inductor's own fusion, without its Triton.

Dynamo, aot_autograd and inductor run as they do for a GPU, up to and with the text of the kernels
and the Python that calls them. That Python is run; a kernel of the text, instead of being compiled,
is recorded as one operator that reads and writes what inductor says it does. Products, attention,
collectives and all else that inductor leaves to torch it calls as torch's operators.
"""

import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

from sim.capturing.operators import tensor_of
from sim.capturing.patches import Patches
from sim.recording.recording import Operator, Tensor

Launched = Callable[[Operator, list[Any], list[Any]], None]

# What needs a GPU to time alternatives, or to record a graph of launches; checks of strides; caches
# on the disk. `profile_bandwidth` lets kernels say the bytes that they move.
_SETTINGS = {
    "triton.cudagraphs": False,
    "max_autotune": False,
    "max_autotune_gemm": False,
    "shape_padding": False,
    "benchmark_fusion": False,
    "benchmark_combo_kernel": False,
    "cpp_wrapper": False,
    "size_asserts": False,
    "alignment_asserts": False,
    "compile_threads": 1,
    "fx_graph_cache": False,
    "profile_bandwidth": True,
    "profile_bandwidth_regex": "^$",
}
_LEFT_OUT = {
    "max_autotune": "products are those of cuBLAS, where torch.compile would choose by their times",
    "triton.cudagraphs": "CUDA graphs of torch.compile are left out: each kernel is launched",
}
# What inductor asks of the device beside what scripts ask (an H100's, as theirs).
_DEVICE = {
    "warp_size": 32,
    "regs_per_multiprocessor": 65536,
    "max_threads_per_multi_processor": 2048,
    "max_threads_per_block": 1024,
    "shared_memory_per_block": 49152,
    "shared_memory_per_block_optin": 232448,
    "L2_cache_size": 50 << 20,
    "gcnArchName": "",
}


class Compiled:
    """Makes torch.compile work in a capture, from the moment a script asks for it."""

    def __init__(self, torch: Any, patches: Patches, note: Callable[[str], object]) -> None:
        self.torch, self.patches, self.note = torch, patches, note
        self.launched: Launched = lambda *_: None
        self.there = False

    def install(self) -> None:
        """Inductor is imported, and patched, when it is first needed."""
        real = self.torch.compile

        def compile(*args: Any, **kwargs: Any) -> Any:
            self._prepare()
            return real(*args, **kwargs)

        self.patches.set(self.torch, "compile", compile)

    def _prepare(self) -> None:
        if self.there:
            return
        self.there = True
        inductor = _modules("torch._inductor", _INDUCTOR)
        self._configure(inductor)
        self._device(inductor)
        self._codegen(inductor)

    def _configure(self, inductor: dict[str, Any]) -> None:
        dynamo = import_module("torch._dynamo")
        dynamo.reset()
        self.patches.also(dynamo.reset)
        warnings.filterwarnings("ignore", "Accessing the data pointer of FakeTensor")
        dynamo.allow_in_graph(self.torch.nn.functional.scaled_dot_product_attention)
        frames = import_module("torch._dynamo.convert_frame").CatchErrorsWrapper
        self.patches.set(frames, "__call__", _without_modes(self.torch, frames.__call__))
        graphs = import_module("torch._functorch.config")
        self._set(inductor["config"].patch(_SETTINGS))
        self._set(graphs.patch(enable_autograd_cache=False))
        whole = inductor["compile_fx"].compile_fx

        def compile_fx(*args: Any, config_patches: Any = None, **kwargs: Any) -> Any:
            for name, note in _LEFT_OUT.items():
                if (config_patches or {}).get(name):
                    self.note(note)
            own = {k: v for k, v in (config_patches or {}).items() if k not in _SETTINGS}
            return whole(*args, config_patches=own or None, **kwargs)

        self.patches.set(inductor["compile_fx"], "compile_fx", compile_fx)

    def _set(self, changes: Any) -> None:
        changes.__enter__()
        self.patches.also(lambda: changes.__exit__(None, None, None))

    def _device(self, inductor: dict[str, Any]) -> None:
        cuda, patches = self.torch.cuda, self.patches
        properties = cuda.get_device_properties(0)
        for name, value in _DEVICE.items():
            setattr(properties, name, value)
        interface = import_module("torch._dynamo.device_interface").CudaInterface
        for owner in (interface, interface.Worker):
            patches.set(owner, "get_device_properties", staticmethod(lambda *_: properties))
        for name in ("_exchange_device", "_maybe_exchange_device"):
            patches.set(cuda, name, _answering(0))
        system = staticmethod(_answering({"hash": ""}))
        patches.set(inductor["codecache"].CacheBase, "get_system", system)

    def _codegen(self, inductor: dict[str, Any]) -> None:
        torch, patches = self.torch, self.patches
        triton = import_module("torch.utils._triton")
        patches.set(triton, "triton_hash_with_backend", _answering(""))
        patches.set(inductor["scheduler"], "has_triton", _answering(True))

        def empty(size: Any, stride: Any, dtype: Any) -> Any:
            return torch.empty_strided(size, stride, dtype=dtype, device="cuda")

        def reinterpreted(tensor: Any, size: Any, stride: Any, offset: int = 0) -> Any:
            return tensor.as_strided(size, stride, tensor.storage_offset() + offset)

        def kernel(_: Any, name: str, source: str, **__: Any) -> Any:
            return Kernel(torch, name, source, self.launched)

        guards = torch._C._dynamo.guards
        patches.set(guards, "_empty_strided_cuda", empty)
        patches.set(guards, "_reinterpret_tensor", reinterpreted)
        patches.set(inductor["async_compile"].AsyncCompile, "triton", kernel)
        folder = inductor["fx_passes.joint_graph"].UniformValueConstantFolder
        patches.set(folder, "_deduce_value", _on_host(torch, folder._deduce_value))
        wrapper = inductor["codegen.wrapper"].PythonWrapperCodegen
        patches.set(wrapper, "write_triton_header_once", _header)


_INDUCTOR = (
    *("config", "compile_fx", "codecache", "scheduler", "async_compile", "codegen.wrapper"),
    "fx_passes.joint_graph",
)


def _modules(package: str, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: import_module(f"{package}.{name}") for name in names}


def _answering(answer: Any) -> Any:
    """A function of its own that always answers the same: dynamo tells functions apart."""
    return lambda *_, **__: answer


def _without_modes(torch: Any, convert: Any) -> Any:
    """Frames are traced as if nothing were recorded: those under DDP, too, which torch forgets."""
    disabled = torch.utils._python_dispatch._disable_current_modes

    def converted(*args: Any, **kwargs: Any) -> Any:
        with disabled():
            return convert(*args, **kwargs)

    return converted


def _on_host(torch: Any, deduce: Any) -> Any:
    """Constants that inductor folds are computed: on the host, as nothing else can be."""

    class Host(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
            device = {"device": "cpu"} if kwargs and kwargs.get("device") else {}
            return func(*args, **{**(kwargs or {}), **device})

    def _deduce_value(*args: Any) -> Any:
        with Host():
            return deduce(*args)

    return _deduce_value


def _header(wrapper: Any) -> None:
    """What a wrapper imports, without Triton."""
    if "start_graph" not in wrapper.imports.getvalue():
        wrapper.imports.writeline("start_graph = end_graph = lambda *_: None")
        wrapper.imports.writeline("get_raw_stream = lambda _: 0")


class Kernel:
    """A kernel of inductor: its name says what is fused in it, its source what each argument is."""

    def __init__(self, torch: Any, name: str, source: str, launched: Launched) -> None:
        self.torch, self.launched = torch, launched
        self.name = re.sub(r"^triton_|_\d+$", "", name)
        head = re.search(r"^def \w+\((.*?)\):", source, re.MULTILINE | re.DOTALL)
        listed = head[1].split(",") if head else []
        self.arguments = [one.partition(":")[0].strip() for one in listed]
        said = re.search(r"'kernel_num_gb': ([0-9.e+-]+)", source)
        self.bytes = float(said[1]) * 1e9 if said else None

    def run(self, *args: Any, **_: Any) -> None:
        """Record a launch."""
        tensors = [
            (name, one)
            for name, one in zip(self.arguments, args, strict=False)
            if isinstance(one, self.torch.Tensor)
        ]
        reads = [one for name, one in tensors if name.startswith("in_")]
        writes = [one for name, one in tensors if "out_ptr" in name]
        self.launched(self._operator(reads, writes), reads, writes)

    def _operator(self, reads: list[Any], writes: list[Any]) -> Operator:
        outputs = tuple(map(tensor_of, writes))
        written = sum(one.bytes for one in outputs)
        inputs = [tensor_of(one) for one in reads]
        if self.bytes is not None:
            inputs = _read(inputs, self.bytes - written)
        name = f"inductor.{self.name}"
        return Operator(name=name, inputs=tuple(inputs), outputs=outputs, written=written)


def _read(inputs: list[Tensor], size: float) -> list[Tensor]:
    """Inputs of which so many bytes are read: the largest are sliced, or looked up in."""
    found = list(inputs)
    excess = sum(one.bytes for one in inputs) - max(size, 0.0)
    for place in sorted(range(len(inputs)), key=lambda i: -inputs[i].bytes):
        own = inputs[place]
        if excess <= 0.0 or not own.width:
            break
        kept = max(own.bytes - excess, 0.0)
        found[place] = replace(own, elements=round(kept / own.width))
        excess -= own.bytes - kept
    return found
