"""A stand-in for the package flash-attn, for scripts that import it although it is not installed.

Its functions call torch's own fused attention. The algorithm is the same (Dao 2023), so shapes,
FLOPs and the tensors kept for the backward pass are the same. Tensors of flash-attn are [batch,
length, heads, width], and torch's are [batch, heads, length, width].
"""

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from sim.config.errors import InputError
from sim.jobs.capturing.patches import Patches

_VERSION = "2.8.3"  # the version of flash-attn with these signatures


def install(torch: Any, patches: Patches, note: Callable[[str], int]) -> None:
    """Let scripts import `flash_attn` if it is not installed."""
    functions = _functions(torch)

    class Finder:
        """Finds the package, and makes its modules."""

        def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
            if name not in ("flash_attn", "flash_attn.flash_attn_interface"):
                return None
            if name == "flash_attn" and PathFinder.find_spec(name) is not None:
                return None
            return ModuleSpec(name, self, is_package=name == "flash_attn")  # type: ignore[arg-type]

        def create_module(self, spec: ModuleSpec) -> None:
            note("flash_attn is not installed: its calls are recorded as torch's fused attention")

        def exec_module(self, module: ModuleType) -> None:
            vars(module).update({**functions, "__version__": _VERSION})

    finder: Any = Finder()
    sys.meta_path.append(finder)
    patches.also(lambda: sys.meta_path.remove(finder))
    patches.also(_forget)


def _forget() -> None:
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "flash_attn" and getattr(module, "__file__", None) is None:
            del sys.modules[name]


def _functions(torch: Any) -> dict[str, Callable[..., Any]]:
    def flash_attn_func(
        q: Any, k: Any, v: Any, dropout_p: float = 0.0, softmax_scale: float | None = None,
        causal: bool = False, window_size: tuple[int, int] = (-1, -1), **more: Any,
    ) -> Any:  # fmt: skip
        if tuple(window_size) != (-1, -1):
            fault = f"the cost of flash_attn with a window of {tuple(window_size)} is unknown"
            raise InputError("sim capture", fault, "leave the window out")
        if more.get("return_attn_probs") or more.get("alibi_slopes") is not None:
            fault = "the cost of flash_attn's slopes and scores is unknown"
            raise InputError("sim capture", fault, "leave them out")
        q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
        found = torch.ops.aten._scaled_dot_product_flash_attention(
            q, k, v, dropout_p, causal, False, scale=softmax_scale
        )[0]
        return found.transpose(1, 2)

    def packed(qkv: Any, *args: Any, **kwargs: Any) -> Any:
        return flash_attn_func(*qkv.unbind(2), *args, **kwargs)

    def pair(q: Any, kv: Any, *args: Any, **kwargs: Any) -> Any:
        return flash_attn_func(q, *kv.unbind(2), *args, **kwargs)

    def in_a_row(
        q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int,
        max_seqlen_k: int, *args: Any, **kwargs: Any,
    ) -> Any:  # fmt: skip
        """Attention of sequences that lie one after the other and have the same length."""
        sequences = len(cu_seqlens_q) - 1
        if sequences * max_seqlen_q != len(q) or sequences * max_seqlen_k != len(k):
            fault = "the cost of flash_attn on sequences of unequal lengths is unknown"
            raise InputError("sim capture", fault, "give all sequences of a batch the same length")
        q, k, v = (tensor.unflatten(0, (sequences, -1)) for tensor in (q, k, v))
        return flash_attn_func(q, k, v, *args, **kwargs).flatten(0, 1)

    return {
        "flash_attn_func": flash_attn_func,
        "flash_attn_qkvpacked_func": packed,
        "flash_attn_kvpacked_func": pair,
        "flash_attn_varlen_func": in_a_row,
    }
