"""Record inductor's kernels as operators, and compile each of its graphs only once."""

import re
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from sim.jobs.capturing.operators import tensor_of
from sim.jobs.recorded.recording import Operator, Tensor

# Records a launch. Takes a function that makes the operator, and the read and the written tensors.
Launched = Callable[[Callable[[], Operator], list[Any], list[Any]], None]


class Kernel:
    """A kernel of inductor: its name lists the fused operators, its source the role of each
    argument."""

    def __init__(self, torch: Any, name: str, source: str, launched: Launched) -> None:
        self.torch, self.launched = torch, launched
        self.name = re.sub(r"^triton_|_\d+$", "", name)
        head = re.search(r"^def \w+\((.*?)\):", source, re.MULTILINE | re.DOTALL)
        listed = head[1].split(",") if head else []
        self.arguments = [argument.partition(":")[0].strip() for argument in listed]
        said = re.search(r"'kernel_num_gb': ([0-9.e+-]+)", source)
        self.bytes = float(said[1]) * 1e9 if said else None

    def run(self, *args: Any, **_: Any) -> None:
        """Record a launch."""
        tensors = [
            (name, tensor)
            for name, tensor in zip(self.arguments, args, strict=False)
            if isinstance(tensor, self.torch.Tensor)
        ]
        reads = [tensor for name, tensor in tensors if name.startswith(("in_", "arg_"))]
        writes = [tensor for name, tensor in tensors if "out_ptr" in name]
        self.launched(lambda: self._operator(reads, writes), reads, writes)

    def _operator(self, reads: list[Any], writes: list[Any]) -> Operator:
        outputs = tuple(map(tensor_of, writes))
        written = sum(tensor.bytes for tensor in outputs)
        inputs = [tensor_of(tensor) for tensor in reads]
        if self.bytes is not None:
            inputs = _read(inputs, self.bytes - written)
        name = f"inductor.{self.name}"
        return Operator(name=name, inputs=tuple(inputs), outputs=outputs, written=written)


def _read(inputs: list[Tensor], size: float) -> list[Tensor]:
    """The inputs, with the largest inputs shortened so that all inputs together have `size`
    bytes."""
    found = list(inputs)
    excess = sum(tensor.bytes for tensor in inputs) - max(size, 0.0)
    for place in sorted(range(len(inputs)), key=lambda i: -inputs[i].bytes):
        tensor = inputs[place]
        if excess <= 0.0 or not tensor.width:
            break
        kept = max(tensor.bytes - excess, 0.0)
        found[place] = replace(tensor, elements=round(kept / tensor.width))
        excess -= tensor.bytes - kept
    return found


def compiled_once(torch: Any, compile: Callable[..., Any], codecache: Any) -> Callable[..., Any]:
    """`fx_codegen_and_compile` that remembers compiled graphs.

    Graphs are equal if torch's key for its disk cache and the lines of the script agree. A graph is
    always compiled anew if its shapes are symbols, if it holds constants, or if it becomes a CUDA
    graph.
    """
    known: dict[Any, Any] = {}

    def compiled(graph: Any, inputs: Sequence[Any], checked: Any, *rest: Any, **given: Any) -> Any:
        key = None
        if not rest and not given.get("cudagraphs") and _plain(torch, graph, inputs):
            key = _key(codecache, graph, inputs, checked, given)
        if key is None:
            return compile(graph, inputs, checked, *rest, **given)
        if key not in known:
            known[key] = compile(graph, inputs, checked, **given)
        found = copy(known[key])  # torch changes the graph of each caller afterwards
        found.compiled_fn_runner = None  # otherwise torch would dismantle the shared runner
        return found

    return compiled


def _plain(torch: Any, graph: Any, inputs: Sequence[Any]) -> bool:
    """Whether all sizes are numbers, and the graph holds no constants."""
    symbols = torch.SymInt, torch.SymFloat, torch.SymBool
    values = [*inputs, *(node.meta.get("val") for node in graph.graph.nodes)]
    sizes = [size for value in values if isinstance(value, torch.Tensor) for size in value.shape]
    held = any(node.op == "get_attr" for node in graph.graph.nodes)
    return not held and not any(isinstance(value, symbols) for value in (*values, *sizes))


def _key(codecache: Any, graph: Any, inputs: Any, checked: Any, given: dict[str, Any]) -> Any:
    lines = tuple(node.meta.get("stack_trace") for node in graph.graph.nodes)
    try:
        return codecache.compiled_fx_graph_hash(graph, inputs, given, checked)[0], lines
    except codecache.BypassFxGraphCache:  # torch has no key for this graph
        return None


class Fallback:
    """Runs a graph uncompiled if inductor fails; `note` records the failure and its `place`."""

    def __init__(
        self, inductor: Any, failed: Any, note: Callable[[str], int], place: Callable[[], str]
    ) -> None:
        self.compile, self.each = inductor.compile_fx, inductor.compile_fx_inner
        self.boxed, self.failed = inductor.make_boxed_func, failed
        self.note, self.place = note, place

    def compiled(self, graph: Any, *args: Any, **given: Any) -> Any:
        """A compiled graph, forward and backward; the graph itself if inductor fails.

        The backward graph is compiled after its first forward pass. If inductor fails there, this
        backward pass runs the traced graph uncompiled, and later steps run the script's own code.
        """
        place, broken = self.place(), []

        def told(error: Exception) -> None:
            said = str(error).splitlines()[0][:160]
            self.note(f"{place}: recorded without torch.compile, which fails ({said})")

        def each(part: Any, *rest: Any, **settings: Any) -> Any:
            try:
                return self.each(part, *rest, **settings)
            except self.failed as error:
                if not settings.get("is_backward"):
                    raise
                told(error)
                broken.append(part)
                return self.boxed(part.forward)

        def run(*inputs: Any) -> Any:
            return (graph if broken else made)(*inputs)

        try:
            made = self.compile(graph, *args, **{"inner_compile": each, **given})
        except self.failed as error:
            told(error)
            return graph
        return run
