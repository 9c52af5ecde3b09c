"""Folders of one's own that join the packages of `sim`, for one test."""

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

Add = Callable[[str, str, str], None]


@pytest.fixture
def add(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Add]:
    """`add(package, name, source)` puts a module into a folder that belongs to a package."""
    added: list[str] = []

    def join(package: str, name: str, source: str) -> None:
        folder = tmp_path / package
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text(source)
        module = import_module(package)
        monkeypatch.setattr(module, "__path__", [*module.__path__, str(folder)])
        added.append(f"{package}.{name}")

    yield join
    for name in added:
        sys.modules.pop(name, None)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which commands run and files are looked for."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
