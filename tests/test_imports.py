"""Imports run one way and in no circle, and importing costs little."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import sim

ROOT = Path(sim.__file__).parent

# Later layers may import earlier ones; names on one line may not import one another, except that
# descriptions of work (kernels, what is fused of them) are for everyone after the waist.
LAYERS = [
    ["config"],
    ["program", "variability"],
    ["model", "hardware", "collectives"],
    ["parallel"],
    ["frameworks", "recording"],
    ["engine"],
    ["sharing"],
    ["scenario"],
    ["uncertainty"],
    ["formats"],
    ["results"],
    ["simulate_sharing", "simulate_recording"],
    ["simulate"],
    ["samples", "reliability", "calibration", "traces"],
    ["capturing"],
    ["sweeps"],
    ["search"],
    ["explanation"],
    ["validation"],
    ["plots"],
    ["comparison", "studies", "outputs"],
    ["cli"],
    ["__main__"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
DESCRIPTIONS = (
    *("sim.model.kernels", "sim.model.fusion", "sim.model.precision", "sim.model.checkpointing"),
    "sim.program",
)


def name_of(path: Path) -> str:
    """The dotted name of a module's file."""
    return ".".join(("sim", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(
        ".__init__"
    )


MODULES = {name_of(path): path for path in sorted(ROOT.rglob("*.py"))}
PARTS = {name: path for name, path in MODULES.items() if name != "sim"}
each_module = pytest.mark.parametrize("module", PARTS)


@cache
def imports(module: str) -> frozenset[str]:
    """What a module imports anywhere: within functions too, but not for the type checker alone."""
    return frozenset(_imported(ast.parse(MODULES[module].read_text()).body))


def _imported(statements: list[ast.stmt]) -> Iterator[str]:
    for statement in statements:
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            names = (f"{statement.module}.{alias.name}" for alias in statement.names)
            yield from (name if name in MODULES else str(statement.module) for name in names)
        elif not (isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.dump(statement.test)):
            for field in ("body", "orelse", "finalbody", "handlers", "cases"):
                yield from _imported(getattr(statement, field, []))


def layer(module: str) -> str:
    name = module.split(".")[1]
    assert name in LEVEL, f"say in LAYERS where sim.{name} stands"
    return name


@each_module
def test_imports_run_one_way(module: str) -> None:
    own = layer(module)
    for imported in imports(module):
        if not imported.startswith("sim."):
            continue
        other = layer(imported)
        beside = LEVEL[other] == LEVEL[own] and other != own
        assert LEVEL[other] <= LEVEL[own], f"{own} imports {imported}, which stands above it"
        assert not beside or imported.startswith(DESCRIPTIONS), f"{own} imports {imported} beside"


def test_no_modules_import_one_another_in_a_circle() -> None:
    graph = {module: imports(module) & MODULES.keys() for module in MODULES}
    TopologicalSorter(graph).prepare()  # CycleError names the circle


@each_module
def test_simpy_is_imported_in_the_engine_only(module: str) -> None:
    assert layer(module) == "engine" or packages(module).isdisjoint({"simpy"})


@each_module
def test_matplotlib_is_imported_in_plots_only(module: str) -> None:
    assert layer(module) == "plots" or packages(module).isdisjoint({"matplotlib"})


def packages(module: str) -> set[str]:
    """The top-level packages that a module imports."""
    return {name.partition(".")[0] for name in imports(module)}


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
