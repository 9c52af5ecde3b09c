"""Plugins: the modules of a package are found without being registered anywhere.

A new collective, network shape, schedule or kind of layer is one new file in the folder of its
kind. A folder outside of the package takes part when it is appended to the package's `__path__`.
"""

import sys
from collections.abc import Callable
from functools import cache, wraps
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import ParamSpec, TypeVar, cast

Args = ParamSpec("Args")
Answer = TypeVar("Answer")


def modules(package: str) -> dict[str, ModuleType]:
    """The modules of a package by name, in alphabetical order.

    >>> {"direct", "ring"} <= set(modules("sim.collectives.algorithms"))
    True
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
        def of_folders(_: tuple[str, ...]) -> Callable[Args, Answer]:
            return cast("Callable[Args, Answer]", cache(function))

        @wraps(function)
        def remembering(*args: Args.args, **kwargs: Args.kwargs) -> Answer:
            return of_folders(_folders(package))(*args, **kwargs)

        return remembering

    return decorate


def dataclasses(package: str, tag: str) -> tuple[type, ...]:
    """The dataclasses of a package's modules that have a `tag` of their own, such as a shape.

    >>> [kind.__name__ for kind in dataclasses("sim.hardware.cluster.fabrics", "fabric")]
    ['FullMesh', 'NvLinkMesh', 'NvSwitch', 'Pcie', 'NvLinkRing', 'TorusFabric']
    """
    return _dataclasses(tuple(modules(package).values()), tag)


@cache
def _dataclasses(folder: tuple[ModuleType, ...], tag: str) -> tuple[type, ...]:
    return tuple(
        member
        for module in folder
        for member in vars(module).values()
        if isinstance(member, type) and member.__module__ == module.__name__
        if tag in member.__annotations__
    )
