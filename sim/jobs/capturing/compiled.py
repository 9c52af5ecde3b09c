"""How does `torch.compile` work without a GPU? Inductor fuses operators itself, but its Triton
kernels do not run.

Dynamo, aot_autograd and inductor run as for a GPU. They write the source of the kernels, and Python
that calls the kernels. This Python is run. A kernel is not compiled: it is recorded as an operator
with the reads and writes that inductor states. Inductor leaves products, attention and collectives
to torch, and calls them as torch's operators.
"""

from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from typing import Any

from sim.jobs.capturing.inductor import Fallback, Kernel, compiled_once
from sim.jobs.capturing.log import Log
from sim.jobs.capturing.patches import Patches
from sim.jobs.capturing.recorder import Recorder

# Switched off: timing of alternatives on a GPU, checks of strides, and caches on the disk.
# With `profile_bandwidth`, the source of a kernel says how many bytes the kernel moves.
_SETTINGS = {
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
_PRODUCTS = "products run in cuBLAS; on a GPU torch.compile would choose kernels by their times"
_GRAPHS = "the memory that CUDA graphs of torch.compile take for themselves is not counted"
_FLEX = "flex_attention is timed as full attention, because its mask is not evaluated"
# Properties of an H100 that inductor reads, in addition to the properties that scripts read.
_DEVICE = {
    "warp_size": 32,
    "regs_per_multiprocessor": 65536,
    "max_threads_per_multi_processor": 2048,
    "max_threads_per_block": 1024,
    "shared_memory_per_block": 49152,
    "shared_memory_per_block_optin": 232448,
    "gcnArchName": "",
}


class Compiled:
    """Makes torch.compile work in a capture once a script calls it.

    Differences from torch.compile on a GPU become notes of the log. `place` gives the present line
    of the script. `recorder` records kernels and allocates their memory.
    """

    def __init__(
        self, torch: Any, patches: Patches, log: Log, place: Callable[[], str], recorder: Recorder
    ) -> None:
        self.torch, self.patches, self.log, self.place = torch, patches, log, place
        self.note, self.recorder = log.notes.number, recorder
        self.there = False
        self.modes: list[Any] = []  # modes of a capture, which are off while dynamo traces

    def install(self) -> None:
        """Patch `torch.compile`; inductor is imported, and patched, at the first call."""
        real = self.torch.compile

        def compile(*args: Any, **kwargs: Any) -> Any:
            self._prepare()
            return real(*args, **kwargs)

        self.patches.set(self.torch, "compile", compile)

    def _prepare(self) -> None:
        if self.there:
            return
        self.there = True
        inductor = {name: import_module(f"torch._inductor.{name}") for name in _INDUCTOR}
        self._configure(inductor)
        self._device(inductor)
        self._codegen(inductor)
        self.recorder.line.install(self.patches)

    def _configure(self, inductor: dict[str, Any]) -> None:
        dynamo = import_module("torch._dynamo")
        dynamo.reset()
        self.patches.also(dynamo.reset)
        dynamo.allow_in_graph(self.torch.nn.functional.scaled_dot_product_attention)
        frames = import_module("torch._dynamo.convert_frame").CatchErrorsWrapper
        self.patches.set(frames, "__call__", self._without_modes(frames.__call__))
        for kind in _all_of(self.torch.optim.Optimizer):
            if "_init_group" in vars(kind):
                self.patches.set(kind, "_init_group", self._with_modes(kind._init_group))
        graphs = import_module("torch._functorch.config")
        self._set(inductor["config"].patch(_SETTINGS))
        self._set(graphs.patch(enable_autograd_cache=False))
        failed = import_module("torch._inductor.exc").InductorError
        fallback = Fallback(inductor["compile_fx"], failed, self.note, self.place)

        def compile_fx(graph: Any, *args: Any, config_patches: Any = None, **kwargs: Any) -> Any:
            if (config_patches or {}).get("max_autotune"):
                self.note(_PRODUCTS)
            settings = {k: v for k, v in (config_patches or {}).items() if k not in _SETTINGS}
            return fallback.compiled(graph, *args, config_patches=settings or None, **kwargs)

        self.patches.set(inductor["compile_fx"], "compile_fx", compile_fx)
        self.patches.set(inductor["codecache"], "torch_key", _answering(b""))
        each = inductor["compile_fx"].fx_codegen_and_compile
        once = compiled_once(self.torch, each, inductor["codecache"])
        self.patches.set(inductor["compile_fx"], "fx_codegen_and_compile", once)

    def _without_modes(self, convert: Any) -> Any:
        """Switch the capture's modes off while a frame is traced: under DDP, torch does not."""
        disabled = self.torch.utils._python_dispatch._disable_current_modes

        def converted(*args: Any, **kwargs: Any) -> Any:
            with disabled() as self.modes:
                return convert(*args, **kwargs)

        return converted

    def _with_modes(self, make: Any) -> Any:
        """Switch the capture's modes on while an optimizer that dynamo traces makes its states."""

        def made(*args: Any, **kwargs: Any) -> Any:
            with ExitStack() as stack:
                if not self.torch._C._len_torch_dispatch_stack():
                    for mode in reversed(self.modes):
                        stack.enter_context(mode)
                return make(*args, **kwargs)

        return made

    def _in_graph(self, model: Any, *_: Any, **__: Any) -> Any:
        """Record a compiled graph as a CUDA graph, which it would become on a GPU after two
        steps."""
        self.note(_GRAPHS)

        def replayed(inputs: Any) -> Any:
            self.log.graph = next(self.log.serial)
            try:
                return model(inputs)
            finally:
                self.log.graph = 0

        return replayed

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
        patches.set(self.torch._C, "_cuda_cudaCachingAllocator_is_enabled", _answering(True))
        for name in ("_exchange_device", "_maybe_exchange_device"):
            patches.set(cuda, name, _answering(0))
        system = staticmethod(_answering({"hash": ""}))
        patches.set(inductor["codecache"].CacheBase, "get_system", system)
        # A recomputed random operator need not draw the same numbers again.
        partitioners = import_module("torch._functorch.partitioners")
        patches.set(partitioners, "functionalize_rng_ops", lambda _, fw, bw, *__: (fw, bw))
        # Constants of a graph stay symbolic, as the device cannot compute them.
        patches.set(import_module("torch.fx.experimental.proxy_tensor"), "CONSTANT_NUMEL_LIMIT", -1)

    def _codegen(self, inductor: dict[str, Any]) -> None:
        torch, patches = self.torch, self.patches
        triton = import_module("torch.utils._triton")
        patches.set(triton, "triton_hash_with_backend", _answering(""))
        patches.set(inductor["scheduler"], "has_triton", _answering(True))
        patches.set(inductor["compile_fx"], "get_input_idxs_to_check", _answering(()))  # alignment
        patches.set(inductor["compile_fx"], "cudagraphify", self._in_graph)

        def kernel(_: Any, name: str, source: str, **__: Any) -> Any:
            if "_tem_fused_flex_attention" in name:
                self.note(_FLEX)
            return Kernel(torch, name, source, self.recorder.launched)

        guards = torch._C._dynamo.guards
        patches.set(guards, "_empty_strided_cuda", self.recorder.empty)
        patches.set(guards, "_reinterpret_tensor", self.recorder.reinterpreted)
        patches.set(inductor["async_compile"].AsyncCompile, "triton", kernel)
        folder = inductor["fx_passes.joint_graph"].UniformValueConstantFolder
        patches.set(folder, "_deduce_value", _on_host(torch, folder._deduce_value))
        wrapper = inductor["codegen.wrapper"].PythonWrapperCodegen
        patches.set(wrapper, "write_triton_header_once", _header)


_INDUCTOR = (
    *("config", "compile_fx", "codecache", "scheduler", "async_compile", "codegen.wrapper"),
    "fx_passes.joint_graph",
)


def _answering(answer: Any) -> Any:
    """Return a new function with a fixed answer. Each patch needs a function of its own, because
    dynamo tells functions apart."""
    return lambda *_, **__: answer


def _all_of(kind: Any) -> list[Any]:
    """A class and all its subclasses."""
    return [kind, *(each for subclass in kind.__subclasses__() for each in _all_of(subclass))]


def _on_host(torch: Any, deduce: Any) -> Any:
    """Let inductor fold constants on the host, since the device computes nothing."""

    class Host(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
            device = {"device": "cpu"} if kwargs and kwargs.get("device") else {}
            return func(*args, **{**(kwargs or {}), **device})

    def _deduce_value(*args: Any) -> Any:
        with Host():
            return deduce(*args)

    return _deduce_value


def _header(wrapper: Any) -> None:
    """Write the imports of the Python that calls kernels, without Triton."""
    if "start_graph" not in wrapper.imports.getvalue():
        wrapper.imports.writeline("start_graph = end_graph = lambda *_: None")
        wrapper.imports.writeline("get_raw_stream = lambda _: 0")
