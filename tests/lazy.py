"""Packages that a test imports when it needs them: collecting tests is quick without."""

from typing import Any

import pytest


class _Lazy:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        """Skips the test that asks where the package is missing. Collection asks nothing else."""
        if attribute.startswith(("__", "_mock", "_pytest", "pytest")):
            raise AttributeError(attribute)
        return getattr(pytest.importorskip(self._name), attribute)


torch = _Lazy("torch")
