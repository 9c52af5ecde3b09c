"""How are modules of other packages patched, and later restored?"""

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_MISSING = object()


class Patches:
    """Sets attributes, and remembers how to undo all changes, the last change first."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    def set(self, owner: Any, name: str, value: Any) -> Any:
        """Set an attribute and return its old value (None if the attribute is new)."""
        old = owner.__dict__.get(name, _MISSING) if hasattr(owner, "__dict__") else _MISSING
        if old is _MISSING and not isinstance(owner, type):  # a class inherits attributes of bases
            old = getattr(owner, name, _MISSING)
        setattr(owner, name, value)
        self.also(lambda: delattr(owner, name) if old is _MISSING else setattr(owner, name, old))
        return None if old is _MISSING else old

    def when_imported(self, name: str, change: Callable[[ModuleType], None]) -> None:
        """Change a module now if it is imported, otherwise when it is imported."""
        if name in sys.modules:
            change(sys.modules[name])
            return
        finder: Any = _Finder(name, change)
        sys.meta_path.insert(0, finder)
        self.also(lambda: sys.meta_path.remove(finder))

    def also(self, undo: Callable[[], object]) -> None:
        """Call `undo` when the patches are restored."""
        self._undo.append(undo)

    def restore(self) -> None:
        """Undo all changes."""
        while self._undo:
            self._undo.pop()()


class _Finder:
    """Finds a module as usual, and changes it when it is loaded."""

    def __init__(self, name: str, change: Callable[[ModuleType], None]) -> None:
        self.name, self.change = name, change

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name == self.name else None
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def loaded(module: ModuleType) -> None:
                load(module)
                self.change(module)

            spec.loader.exec_module = loaded  # type: ignore[method-assign]
        return spec
