"""Imports run one way, and importing costs little."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sim

ROOT = Path(sim.__file__).parent

# Later layers may import earlier ones; names on one line may not import one another, except that
# descriptions of work (sim.model.kernels) are for everyone after the waist.
LAYERS = [
    ["config"],
    ["program", "variability"],
    ["model", "hardware", "collectives"],
    ["parallel"],
    ["engine"],
    ["sharing"],
    ["scenario"],
    ["uncertainty"],
    ["results"],
    ["simulate_sharing"],
    ["simulate"],
    ["samples", "reliability", "calibration"],
    ["sweep"],
    ["search"],
    ["validation", "comparison"],
    ["formats", "plots"],
    ["cli"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
DESCRIPTIONS = ("sim.model.kernels", "sim.program")


def modules() -> list[Path]:
    return sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def layer(module: str) -> str:
    found = module.split(".")[1]
    assert found in LEVEL, f"say in LAYERS where sim.{found} stands"
    return found


def imports(path: Path) -> Iterator[str]:
    """The modules of `sim` that a file imports at its top; inside functions it may look up."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.startswith("sim."))
        if isinstance(node, ast.ImportFrom) and node.module == "sim":
            yield from (f"sim.{name.name}" for name in node.names)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sim."):
            yield from ((f"{node.module}.{name.name}") for name in node.names)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_run_one_way(path: Path) -> None:
    own = layer(".".join(("sim", *path.relative_to(ROOT).with_suffix("").parts)))
    for found in imports(path):
        other = layer(found)
        beside = LEVEL[other] == LEVEL[own] and other != own
        assert LEVEL[other] <= LEVEL[own], f"{own} imports {found}, which stands above it"
        assert not beside or found.startswith(DESCRIPTIONS), f"{own} imports {found} beside it"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_simpy_is_imported_in_the_engine_only(path: Path) -> None:
    text = path.read_text()
    assert "engine" in path.parts or "import simpy" not in text


def test_importing_the_package_and_its_command_loads_nothing_heavy() -> None:
    code = "import sim, sim.cli.main, sys; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    heavy = {"numpy", "pandas", "matplotlib", "pydantic", "torch", "simpy", "tqdm", "quantiphy"}
    assert heavy.isdisjoint(loaded)


def test_a_run_loads_neither_pandas_nor_matplotlib_nor_torch() -> None:
    code = "import sim, sys; str(sim.run('gpt2-one-gpu')); print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    assert {"pandas", "matplotlib", "torch"}.isdisjoint(loaded)


def test_every_public_name_is_there_and_sorted() -> None:
    assert sim.__all__ == sorted(sim.__all__, key=lambda name: (name[0].islower(), name))
    assert [name for name in sim.__all__ if getattr(sim, name, None) is None] == []
    assert dir(sim) == sorted(sim.__all__)


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'warp'"):
        sim.warp  # noqa: B018
