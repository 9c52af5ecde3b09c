"""What Hugging Face's transformers decides by the content of tensors, decided without it.

Where tensors are fake, transformers takes itself to be traced and makes masks for sequences that
may be packed (masking_utils.py, `find_packed_sequence_indices`), with which attention is not the
fused causal one of a real run. Sequences are taken to be whole.
"""

import sys
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from sim.capturing.patches import Patches

_MODULE = "transformers.masking_utils"


def install(patches: Patches) -> None:
    """Patch the module if it is there, else when a script imports it."""
    if _MODULE in sys.modules:
        _whole(sys.modules[_MODULE], patches)
        return
    finder: Any = _Finder(patches)
    sys.meta_path.insert(0, finder)
    patches.also(lambda: sys.meta_path.remove(finder))


def _whole(module: ModuleType, patches: Patches) -> None:
    if hasattr(module, "find_packed_sequence_indices"):
        patches.set(module, "find_packed_sequence_indices", lambda *_, **__: None)


class _Finder:
    """Finds one module, as others would, and patches it once it is loaded."""

    def __init__(self, patches: Patches) -> None:
        self.patches = patches

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name == _MODULE else None
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def loaded(module: ModuleType) -> None:
                load(module)
                _whole(module, self.patches)

            spec.loader.exec_module = loaded  # type: ignore[method-assign]
        return spec
