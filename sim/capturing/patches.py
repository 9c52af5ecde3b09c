"""Changes to other people's modules that do not outlive their context."""

from collections.abc import Callable
from typing import Any

_MISSING = object()


class Patches:
    """Sets attributes and remembers how to take everything back, the last first."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    def set(self, owner: Any, name: str, value: Any) -> Any:
        """Set an attribute; what it was before is returned, None where there was none."""
        old = owner.__dict__.get(name, _MISSING) if hasattr(owner, "__dict__") else _MISSING
        old = getattr(owner, name, _MISSING) if old is _MISSING and _plain(owner) else old
        setattr(owner, name, value)
        self.also(lambda: delattr(owner, name) if old is _MISSING else setattr(owner, name, old))
        return None if old is _MISSING else old

    def also(self, undo: Callable[[], object]) -> None:
        """Do this on the way back."""
        self._undo.append(undo)

    def restore(self) -> None:
        """Take everything back."""
        while self._undo:
            self._undo.pop()()


def _plain(owner: Any) -> bool:
    """Whether an attribute is the owner's own, not that of its class or a base."""
    return not isinstance(owner, type)
