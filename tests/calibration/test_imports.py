"""Calibration's folders import one way: timing, then fitting, then training."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import sim

ROOT = Path(sim.__file__).parent
FOLDERS = ("timing", "fitting", "training")


def modules() -> dict[str, Path]:
    paths = (ROOT / "calibration").rglob("*.py")
    return {
        ".".join(("sim", *path.relative_to(ROOT).with_suffix("").parts)): path for path in paths
    }


def imported(path: Path) -> Iterator[str]:
    """Modules that a file imports, also inside of functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def graph() -> dict[str, set[str]]:
    known = modules()
    return {name: known.keys() & set(imported(path)) for name, path in known.items()}


def test_no_folder_imports_a_later_one() -> None:
    for name, needed in graph().items():
        folder = name.split(".")[2]
        allowed = FOLDERS[: FOLDERS.index(folder) + 1] if folder in FOLDERS else FOLDERS
        inside = [module for module in needed if module.split(".")[2] in FOLDERS]
        assert all(module.split(".")[2] in allowed for module in inside), (name, inside)


def test_no_modules_import_one_another() -> None:
    TopologicalSorter(graph()).prepare()
