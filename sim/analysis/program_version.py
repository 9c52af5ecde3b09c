"""The version of the program that answers, from its source, added modules, and packages."""

import sys
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import sim
from sim.config.plugins import roots
from sim.config.reads import joined

# Packages that numbers come from; the last two train the models of shared updates.
_COMPUTES = ("numpy", "simpy", "torch", "scikit-learn")


def program_version() -> str:
    """Return a hash of this package's source, of modules added to it, and of the versions of
    packages that it computes with."""
    return _version_of(len(sys.modules))


@lru_cache(maxsize=1)
def _version_of(loaded: int) -> str:
    """Return the hash, cached by the number of `loaded` modules, since a new module may change
    it."""
    added = {
        name: file
        for name, module in list(sys.modules.items())
        if name.startswith("sim.") and (file := getattr(module, "__file__", None))
        if not file.startswith((str(_ROOT), *map(str, roots())))
    }
    plugins = [path for root in roots() for path in sorted(root.rglob("*.py"))]
    files = {**{str(path): path for path in plugins}, **added}
    return joined([_own_version(), *(_source(name, Path(files[name])) for name in sorted(files))])


_ROOT = Path(sim.__file__).parent


@cache
def _own_version() -> str:
    files = sorted(_ROOT.rglob("*.py"))
    texts = [_source(str(path.relative_to(_ROOT)), path) for path in files]
    return joined([*texts, *map(_version, _COMPUTES)])


def _source(name: str, path: Path) -> str:
    return f"{name}\n{path.read_text(encoding='utf-8')}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"
