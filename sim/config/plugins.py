"""What a folder offers: its modules, found without being registered anywhere.

A new collective, schedule or kind of layer is a new file in the folder of its kind, and nothing
else. A folder of one's own joins in by being appended to the package's `__path__`.
"""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType


def modules(package: str) -> dict[str, ModuleType]:
    """The modules of a package by name, in alphabetical order.

    >>> sorted(modules("sim.collectives.algorithms"))[:2]
    ['direct', 'halving_doubling']
    """
    return _modules(package, tuple(import_module(package).__path__))


@cache
def _modules(package: str, folders: tuple[str, ...]) -> dict[str, ModuleType]:
    names = sorted(info.name for info in iter_modules(folders))
    return {name: import_module(f"{package}.{name}") for name in names}
