"""Calibration's folders import one way: timing, then fitting, then training."""

import ast
from collections.abc import Iterator
from pathlib import Path

import sim

ROOT = Path(sim.__file__).parent
PACKAGE = "sim.analysis.calibration"
FOLDERS = ("timing", "fitting", "training")


def imported(path: Path) -> Iterator[str]:
    """Modules that a file imports, also inside of functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def test_no_folder_imports_a_later_one() -> None:
    for own, folder in enumerate(FOLDERS):
        later = tuple(
            f"sim.analysis.calibration.{name}" for name in ("kernel_profile", *FOLDERS[own + 1 :])
        )
        for path in (ROOT / "analysis" / "calibration" / folder).rglob("*.py"):
            assert not [name for name in imported(path) if name.startswith(later)], path
