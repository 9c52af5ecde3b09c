"""Plugins: the modules of a package are found without being registered anywhere.

A new collective, network shape, schedule or kind of layer is one new file in the folder of its
kind. A folder of the user may mirror the package: with `SIM_PLUGINS=mine` the file
`mine/parallel/schedules/eager.py` is found as `sim/parallel/schedules/eager.py` would be, in worker
processes, too.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, wraps
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import ParamSpec, TypeVar, cast

from sim.config.errors import InputError

_OURS = Path(__file__).resolve().parents[1]
ADDED: dict[str, dict[Path, bytes]] = {}  # modules of single files (`added_file`), and their texts
Args = ParamSpec("Args")
Answer = TypeVar("Answer")


class Modules(Mapping[str, ModuleType]):
    """The modules of a package by name, in alphabetical order; a module is imported when it is
    looked up."""

    def __init__(self, package: str, names: Iterable[str]) -> None:
        self.package, self.names = package, tuple(sorted(names))

    def __getitem__(self, name: str) -> ModuleType:
        if name not in self.names:
            raise KeyError(name)
        whole = f"{self.package}.{name}"
        return sys.modules.get(whole) or _imported(whole)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def _imported(name: str) -> ModuleType:
    """Import a module. Raises `InputError` for a module of the user that cannot be imported."""
    try:
        return import_module(name)
    except Exception as error:
        spec = find_spec(name)
        file = Path(spec.origin) if spec and spec.origin else _OURS / name
        if _OURS in file.parents:
            raise
        fault = f"cannot be imported ({type(error).__name__}: {error})"
        raise InputError(str(file), fault, "mend the file") from error


def modules(package: str) -> Modules:
    """The modules of a package.

    >>> {"direct", "ring"} <= set(modules("sim.collectives.algorithms"))
    True
    """
    added = tuple(name.rpartition(".")[2] for name in ADDED if name.rpartition(".")[0] == package)
    return _modules(package, _folders(package), added)


def is_added(module: str) -> bool:
    """Whether a module was added from outside of the package."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is not None and _OURS not in Path(file).parents


def roots() -> tuple[Path, ...]:
    """The folders that `SIM_PLUGINS` names, then the folders of installed packages. Raises
    `InputError` for a missing folder."""
    return _roots(os.environ.get("SIM_PLUGINS", ""), tuple(sys.path))


def _installed(places: tuple[str, ...]) -> tuple[Path, ...]:
    """The folders of installed packages that an entry point of the group `sim.plugins` names.
    `importlib.metadata` is slow to load, and is loaded only where a package has such a group."""
    listed = (own for place in places for own in Path(place or ".").glob("*-info/entry_points.txt"))
    if not any(b"[sim.plugins]" in file.read_bytes() for file in listed):
        return ()
    from importlib.metadata import entry_points

    specs = [find_spec(point.value) for point in entry_points(group="sim.plugins")]
    return tuple(Path(spec.origin).parent for spec in specs if spec and spec.origin)


@cache
def _roots(named: str, places: tuple[str, ...]) -> tuple[Path, ...]:
    found = tuple(Path(root).resolve() for root in filter(None, named.split(os.pathsep)))
    if missing := [root for root in found if not root.is_dir()]:
        fault = f"{missing[0].name!r} is no folder"
        raise InputError("SIM_PLUGINS", fault, "name a folder that mirrors sim, or unset it")
    return found + _installed(places)


def _folders(package: str) -> tuple[str, ...]:
    found = sys.modules.get(package) or import_module(package)
    for root in roots():
        folder = root.joinpath(*package.split(".")[1:])
        if folder.is_dir() and str(folder) not in found.__path__:
            found.__path__.append(str(folder))
    return tuple(found.__path__)


@cache
def _modules(package: str, folders: tuple[str, ...], added: tuple[str, ...]) -> Modules:
    return Modules(package, (*(info.name for info in iter_modules(folders)), *added))


def remembered(package: str) -> Callable[[Callable[Args, Answer]], Callable[Args, Answer]]:
    """Cache the answers of a function as long as the package has the same folders."""

    def decorate(function: Callable[Args, Answer]) -> Callable[Args, Answer]:
        @cache
        def of_folders(_: tuple[str, ...]) -> Callable[Args, Answer]:
            return cast("Callable[Args, Answer]", cache(function))

        @wraps(function)
        def remembering(*args: Args.args, **kwargs: Args.kwargs) -> Answer:
            return of_folders(_folders(package))(*args, **kwargs)

        return remembering

    return decorate


def naming(package: str, text: str) -> Iterator[ModuleType]:
    """The modules of a package whose source has `text` in quotes; other modules are not imported.

    >>> [module.__name__ for module in naming("sim.parallel.schedules", "gpipe")]
    ['sim.parallel.schedules.flush']
    """
    folder = modules(package)
    return (folder[name] for name in _naming(package, folder.names, text))


@cache
def _naming(package: str, names: tuple[str, ...], text: str) -> tuple[str, ...]:
    files = ((name, find_spec(f"{package}.{name}")) for name in names)
    return tuple(
        name
        for name, spec in files
        if not (spec and spec.origin) or f'"{text}"' in Path(spec.origin).read_text()
    )


def dataclasses(package: str, tag: str) -> tuple[type, ...]:
    """The dataclasses of a package's modules that have a `tag` of their own, such as a shape.

    >>> [kind.__name__ for kind in dataclasses("sim.hardware.cluster.fabrics", "fabric")]
    ['FullMesh', 'NvLinkMesh', 'NvLinkRing', 'TorusFabric', 'NvSwitch', 'Pcie']
    """
    return tagged(tuple(modules(package).values()), tag)


@cache
def tagged(folder: tuple[ModuleType, ...], tag: str) -> tuple[type, ...]:
    """The dataclasses of some modules that have a tag of their own."""
    return tuple(
        member
        for module in folder
        for member in vars(module).values()
        if isinstance(member, type) and member.__module__ == module.__name__
        if tag in member.__annotations__
    )
