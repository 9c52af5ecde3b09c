"""Graphs that inductor is given again: layers that are alike are compiled once."""

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any


def compiled_once(torch: Any, compile: Callable[..., Any], codecache: Any) -> Callable[..., Any]:
    """`fx_codegen_and_compile` with a memory. What tells graphs apart is torch's own key of those
    that it keeps on the disk, and the lines of the script that they come from; a graph whose shapes
    are symbols is compiled whenever it comes, and so is one that holds constants, or that becomes
    a CUDA graph."""
    known: dict[Any, Any] = {}

    def compiled(graph: Any, inputs: Sequence[Any], checked: Any, *rest: Any, **given: Any) -> Any:
        key = None
        if not rest and not given.get("cudagraphs") and _plain(torch, graph, inputs):
            key = _key(codecache, graph, inputs, checked, given)
        if key is None:
            return compile(graph, inputs, checked, *rest, **given)
        if key not in known:
            known[key] = compile(graph, inputs, checked, **given)
        found = copy(known[key])  # what torch makes of it afterwards is this caller's
        found.compiled_fn_runner = None  # whoever holds it takes it apart at the end
        return found

    return compiled


def _plain(torch: Any, graph: Any, inputs: Sequence[Any]) -> bool:
    """Whether all sizes are numbers, and nothing is held but what is given."""
    symbols = torch.SymInt, torch.SymFloat, torch.SymBool
    values = [*inputs, *(node.meta.get("val") for node in graph.graph.nodes)]
    sizes = [size for one in values if isinstance(one, torch.Tensor) for size in one.shape]
    held = any(node.op == "get_attr" for node in graph.graph.nodes)
    return not held and not any(isinstance(one, symbols) for one in (*values, *sizes))


def _key(codecache: Any, graph: Any, inputs: Any, checked: Any, given: dict[str, Any]) -> Any:
    lines = tuple(node.meta.get("stack_trace") for node in graph.graph.nodes)
    try:
        return codecache.compiled_fx_graph_hash(graph, inputs, given, checked)[0], lines
    except codecache.BypassFxGraphCache:  # there is none
        return None
