"""Folders of one's own that join the packages of `sim`, for one test."""

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

from sim.config.plugins import ADDED

Add = Callable[[str, str, str], None]


@pytest.fixture
def add(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Add:
    """`add(package, name, source)` puts a module into a folder that belongs to a package."""

    def join(package: str, name: str, source: str) -> None:
        folder = tmp_path / package
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text(source)
        module = import_module(package)
        monkeypatch.setattr(module, "__path__", [*module.__path__, str(folder)])

    return join


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in which commands run and files are looked for; none of its modules stays, of
    which sweeps of later tests would tell their workers."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]
            ADDED.pop(name, None)
