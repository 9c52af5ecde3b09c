"""What a folder offers: its modules, found without being registered anywhere.

A new collective, schedule or kind of layer is a new file in the folder of its kind, and nothing
else. A folder of one's own joins in by being appended to the package's `__path__`.
"""

import sys
from collections.abc import Callable
from functools import cache, wraps
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import ParamSpec, TypeVar

Args = ParamSpec("Args")
Answer = TypeVar("Answer")


def modules(package: str) -> dict[str, ModuleType]:
    """The modules of a package by name, in alphabetical order.

    >>> sorted(modules("sim.collectives.algorithms"))[:2]
    ['direct', 'halving_doubling']
    """
    return _modules(package, _folders(package))


def _folders(package: str) -> tuple[str, ...]:
    return tuple((sys.modules.get(package) or import_module(package)).__path__)


@cache
def _modules(package: str, folders: tuple[str, ...]) -> dict[str, ModuleType]:
    names = sorted(info.name for info in iter_modules(folders))
    return {name: import_module(f"{package}.{name}") for name in names}


def remembered(package: str) -> Callable[[Callable[Args, Answer]], Callable[Args, Answer]]:
    """Remember what a function answers for as long as the package has the same folders."""

    def decorate(function: Callable[Args, Answer]) -> Callable[Args, Answer]:
        @cache
        def answer(folders: tuple[str, ...], *args: Args.args, **kwargs: Args.kwargs) -> Answer:
            return function(*args, **kwargs)

        @wraps(function)
        def remembering(*args: Args.args, **kwargs: Args.kwargs) -> Answer:
            return answer(_folders(package), *args, **kwargs)

        return remembering

    return decorate
