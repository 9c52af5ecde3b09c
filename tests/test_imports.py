"""Imports run inwards and in no circle, and importing costs little."""

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import sim
from benchmarks import startup

ROOT = Path(sim.__file__).parent

# The rings, the innermost first. Later layers may import earlier ones; names on one line may not
# import one another, except that descriptions of work (kernels, what is fused of them) are for
# everyone after the waist.
RINGS = {
    "the simulator": [
        ["config"],
        ["program", "variability"],
        ["model", "hardware", "collectives"],
        ["parallel"],
        ["engine"],
        ["scenario"],
        ["uncertainty"],
        ["results"],
        ["simulate"],
        ["step_questions"],
        ["kind"],
        ["questions"],
    ],
    "other jobs": [
        ["jobs.recorded", "jobs.sharing", "jobs.generation"],
        ["jobs.traces", "jobs.capturing", "jobs.multi_job", "jobs.reinforcement"],
    ],
    "questions and doors": [
        ["analysis.collectives", "analysis.reliability", "analysis.samples"],
        ["analysis.comparison", "analysis.networks", "analysis.run"],
        ["interface.formats", "interface.frameworks"],
        ["analysis.calibration"],
        ["analysis.program_version"],
        ["analysis.executors"],
        ["analysis.sweeps"],
        ["analysis.search"],
        ["analysis.explanation"],
        ["analysis.validation"],
        ["interface.document"],
        ["interface.views"],
        ["interface.plots"],
        ["interface.page"],
        ["interface.outputs"],
        ["interface.serve"],
        ["interface.showing"],
        ["interface.starting"],
        ["interface.cli"],
        ["__main__"],
    ],
}
LAYERS = [names for layers in RINGS.values() for names in layers]
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
FOLDERS_OF_RINGS = ("sim", "sim.jobs", "sim.analysis", "sim.interface")
PARTS = {name: path for name, path in MODULES.items() if name not in FOLDERS_OF_RINGS}


@cache
def imports(module: str) -> frozenset[str]:
    """What a module imports anywhere: within functions, and for the type checker alone, too."""
    return frozenset(_imported(ast.walk(ast.parse(MODULES[module].read_text()))))


def _imported(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in MODULES else str(node.module) for name in names)


def layer(module: str) -> str:
    """The folder or file of the house that a module stands in."""
    _, *parts = module.split(".")
    name = ".".join(parts[: 2 if parts[0] in ("jobs", "analysis", "interface") else 1])
    assert name in LEVEL, f"say in RINGS where sim.{name} stands"
    return name


def test_imports_run_inwards() -> None:
    for module in PARTS:
        own = layer(module)
        for imported in imports(module) & PARTS.keys():
            other = layer(imported)
            beside = LEVEL[other] == LEVEL[own] and other != own
            assert LEVEL[other] <= LEVEL[own], f"{module} imports {imported}, which stands above it"
            assert not beside or imported.startswith(DESCRIPTIONS), f"{module} imports {imported}"


def test_no_modules_import_one_another_in_a_circle() -> None:
    graph = {module: imports(module) & MODULES.keys() for module in PARTS}
    TopologicalSorter(graph).prepare()  # CycleError names the circle


@pytest.mark.parametrize(
    ("package", "homes"),
    [("simpy", {"engine"}), ("matplotlib", {"interface.page", "interface.plots"})],
)
def test_a_package_is_imported_where_it_is_at_home_only(package: str, homes: set[str]) -> None:
    named = (module for module, path in PARTS.items() if package in path.read_text())
    assert {layer(module) for module in named if package in packages(module)} == homes


def packages(module: str) -> set[str]:
    """The top-level packages that a module loads; what is for the type checker alone is not."""
    tree = ast.parse(MODULES[module].read_text())
    typing = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
    ]
    unloaded = {inner for node in typing for inner in ast.walk(node)}
    loaded = (node for node in ast.walk(tree) if node not in unloaded)
    return {name.partition(".")[0] for name in _imported(loaded)}


def test_importing_the_package_and_its_command_loads_nothing_heavy() -> None:
    code = "import sim, sim.interface.cli.main, sys; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    heavy = {"numpy", "pandas", "matplotlib", "pydantic", "torch", "simpy", "tqdm"}
    assert heavy.isdisjoint(loaded)


FILES, LINES = 133, 21_706  # of `sim`, that a step of a dense job needs


def test_a_plain_step_loads_the_files_that_it_needs() -> None:
    found = startup.loaded()
    files, lines = map(sum, zip(*found.values(), strict=True))
    why = f"load what few jobs need where one asks for it:\n{startup.by_folder(found)}"
    assert files <= FILES, why
    assert lines <= LINES, why


def test_a_run_loads_no_library_that_only_other_questions_need() -> None:
    code = "import sim, sys; str(sim.run('gpt2-one-gpu')); print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    assert {"pandas", "matplotlib", "torch", "pydantic", "joblib"}.isdisjoint(loaded)


def test_every_public_name_is_there_and_sorted() -> None:
    assert sim.__all__ == sorted(sim.__all__, key=lambda name: (name[0].islower(), name))
    assert [name for name in sim.__all__ if getattr(sim, name, None) is None] == []
    assert dir(sim) == sorted(sim.__all__)


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'warp'"):
        sim.warp  # noqa: B018
