"""Answers that are worked out once."""

from collections.abc import Callable
from typing import Any, TypeVar

Key = tuple[object, ...]
Made = TypeVar("Made")


class Known:
    """What has been worked out; jobs of one model, stack and device can share it."""

    def __init__(self) -> None:
        self._answers: dict[Key, Any] = {}

    def memo(self, key: Key, make: Callable[[], Made]) -> Made:
        """What `make` gives, made once for each key; keys begin with what they are for."""
        if key not in self._answers:
            self._answers[key] = make()
        made: Made = self._answers[key]
        return made

    def number(self, key: Key) -> int:
        """A number for each key."""
        return self.memo(("number", *key), lambda: len(self._answers))
