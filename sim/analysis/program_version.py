"""The version of this program: a hash of its source, of added modules and of packages."""

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import sim
from sim.config.added_file import added
from sim.config.plugins import roots
from sim.config.reads import joined

# Packages that compute answers; the last two train the models of shared updates.
_COMPUTES = ("numpy", "simpy", "torch", "scikit-learn")


def program_version() -> str:
    """Return a hash of this package's source, of modules added to it, and of the versions of
    packages that it computes with."""
    texts = sorted(f"{file}\n{text.decode()}" for file, text in added().items())
    return joined([_own_version(roots()), *texts])


@cache
def _own_version(plugins: tuple[Path, ...]) -> str:
    folders = (Path(sim.__file__).parent, *plugins)
    files = [(root, path) for root in folders for path in sorted(root.rglob("*.py"))]
    texts = [f"{path.relative_to(root)}\n{path.read_text('utf-8')}" for root, path in files]
    return joined([*texts, *map(_version, _COMPUTES)])


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"
