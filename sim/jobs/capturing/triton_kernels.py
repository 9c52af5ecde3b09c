"""What do a script's own Triton kernels cost? They are not run.

A kernel is assumed to move each of its tensors once, unless its `launch_metadata` (of Triton)
states its bytes. A kernel that multiplies (`tl.dot`) is refused, because its FLOPs are unknown.
"""

import ast
import re
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

from sim.jobs.capturing.inductor import Launched
from sim.jobs.capturing.operators import tensor_of
from sim.jobs.capturing.patches import Patches
from sim.jobs.recorded.recording import Operator


def install(torch: Any, patches: Patches, launched: Launched, note: Callable[[str], int]) -> None:
    """Record launches in place of compiling kernels. `note` gets a sentence on each kernel."""

    def run(kernel: Any, *args: Any, grid: Any = None, warmup: bool = False, **named: Any) -> None:
        name = kernel.fn.__name__
        if re.search(r"\btl\.dot\b|\blanguage\.dot\b", str(kernel.src)):
            fault = f"the Triton kernel {name} multiplies, and its FLOPs are unknown"
            raise NotImplementedError(fault)
        given = {**dict(zip(kernel.arg_names, args, strict=False)), **named}
        tensors = {
            name: value
            for name, value in given.items()
            if isinstance(value, torch.Tensor) and value.device.type == "cuda"
        }
        stored = written(kernel.src) or set(tensors)
        writes = [tensor for name, tensor in tensors.items() if name in stored]
        moved = list(tensors.values())
        note(f"Triton kernel {name}: {'bytes as declared' if kernel.launch_metadata else _ONCE}")
        launched(lambda: _operator(kernel, moved, grid, given), moved, writes)

    def tuned(tuner: Any, *args: Any, **named: Any) -> None:
        tuner.fn.run(*args, **{**named, **tuner.configs[0].all_kwargs()})

    def change(kind: str, function: Any) -> Callable[[ModuleType], None]:
        return lambda module: patches.set(getattr(module, kind), "run", function)

    patches.when_imported("triton.runtime.jit", change("JITFunction", run))
    patches.when_imported("triton.runtime.autotuner", change("Autotuner", tuned))


_ONCE = "assumed to move each of its tensors once"


def written(source: str) -> set[str]:
    r"""Return the arguments through which a kernel stores, directly or by variables.

    >>> sorted(written("def copy(x, y, n):\n at = y + n\n tl.store(at, tl.load(x + n))"))
    ['n', 'y']
    """
    (function,) = ast.parse(source.strip()).body[-1:]
    made: dict[str, set[str]] = {}  # names from which each variable is computed
    stores: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AugAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                for name in _names(target):
                    made.setdefault(name, set()).update(_pointers(node.value))
        if isinstance(node, ast.Call) and node.args:
            called = ast.unparse(node.func).rpartition(".")[2]
            if called == "store" or called.startswith("atomic"):
                stores |= _pointers(node.args[0])
    while more := set().union(*(made.get(name, set()) for name in stores)) - stores:
        stores |= more
    arguments = function.args.args if isinstance(function, ast.FunctionDef) else []
    return {argument.arg for argument in arguments} & stores


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _pointers(tree: ast.AST) -> set[str]:
    """Return the names in an expression that may be pointers; a loaded value is not a pointer."""
    if isinstance(tree, ast.Call) and ast.unparse(tree.func).endswith("load"):
        return set()
    if isinstance(tree, ast.Name):
        return {tree.id}
    return set().union(*map(_pointers, ast.iter_child_nodes(tree)))


def _operator(kernel: Any, tensors: list[Any], grid: Any, given: dict[str, Any]) -> Operator:
    """Return the operator of a launch; all bytes that the launch moves count as read."""
    inputs = tuple(map(tensor_of, tensors))
    if kernel.launch_metadata is not None:
        said = kernel.launch_metadata(grid, SimpleNamespace(name=kernel.fn.__name__), given)
        moved = (said or {}).get("bytes")
        if moved is not None and inputs:
            first, *_ = inputs
            inputs = (replace(first, elements=round(moved / max(first.width, 1))),)
    return Operator(name=f"triton.{kernel.fn.__name__}", inputs=inputs, outputs=(), written=0.0)
