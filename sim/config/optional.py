"""Packages that only some questions need, and that an extra of this package installs."""

from importlib import import_module
from typing import Any

from sim.config.errors import InputError


def needed(module: str, where: str, extra: str) -> Any:
    """Import a module. Raises `InputError`, which names the `extra`, if it is not installed.

    >>> needed("math", "sim calibrate", "calibrate").pi > 3.0
    True
    """
    try:
        return import_module(module)
    except ImportError as error:
        fault = f"needs {error.name or module}, which is not installed"
        raise InputError(where, fault, f"pip install 'clustersim[{extra}]'") from None
