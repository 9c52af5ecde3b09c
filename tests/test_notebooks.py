"""Notebooks run from top to bottom, define nothing, and are stored with what they show."""

import ast
import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.test_readme import parts

if TYPE_CHECKING:  # they take seconds to load, which collecting the tests would
    from jupyter_client import AsyncKernelManager
    from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
STUDIES = ("async_against_sync", "how_stale", "which_graph", "compression")
# Those that end in a sentence that a cell computes.
ANSWERED = (
    "choosing_a_layout", "cost_and_goodput", "ddp_fsdp_zero", "experts", "first_what_if",
    "long_context", "my_script_on_512_h100s", "networks_compared", "schedules_and_bubbles",
)  # fmt: skip
# nbclient now and then misses the reply of a cell with widgets (it answers their messages on the
# socket that it polls) and then waits for its timeout (s): short where a notebook has widgets.
PATIENCE = {"which_sharing": 40} | dict.fromkeys(STUDIES, 90) | dict.fromkeys(ANSWERED, 60)
NEEDS_TORCH = {"calibrate_a_node", "compression", "my_script_on_512_h100s"}
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

LONG = {"calibrate_a_node", "choosing_a_layout", "compression", "cost_and_goodput", "how_stale",
        "stragglers_at_scale", "which_graph", "which_sharing"}  # fmt: skip

per_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(notebook: "NotebookNode") -> "list[NotebookNode]":
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def said(notebook: "NotebookNode") -> str:
    """What the last cell prints."""
    return "".join(output.get("text", "") for output in code_cells(notebook)[-1].outputs)


def shown(notebook: "NotebookNode") -> list[set[str]]:
    """Per cell, the kinds of output."""
    return [
        {kind for output in cell.outputs for kind in output.get("data", {"error": ""})}
        for cell in code_cells(notebook)
    ]


@pytest.fixture(scope="module")
def kernel() -> "Iterator[AsyncKernelManager]":
    """One kernel for all notebooks, so that what they import is loaded once."""
    from jupyter_client import AsyncKernelManager

    manager = AsyncKernelManager(kernel_name="python3")
    paths = os.pathsep.join((str(ROOT / "notebooks"), str(ROOT)))  # their studies, and sim
    asyncio.run(manager.start_kernel(env={**os.environ, "PYTHONPATH": paths}))
    yield manager
    asyncio.run(manager.shutdown_kernel(now=True))


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[pytest.mark.long] * (path.stem in LONG)) for path in NOTEBOOKS],
    ids=lambda path: path.stem,
)
def test_a_notebook_runs_and_shows_what_is_stored(
    path: Path, tmp_path: Path, kernel: "AsyncKernelManager"
) -> None:
    if path.stem in NEEDS_TORCH:
        pytest.importorskip("torch", reason=f"{path.name} runs torch")
    import nbformat
    from nbclient import NotebookClient

    stored = nbformat.read(path, as_version=4)
    fresh = nbformat.read(path, as_version=4)
    begin = nbformat.v4.new_code_cell(f"%reset -f\n%cd -q {tmp_path}")
    fresh.cells.insert(0, begin)
    NotebookClient(fresh, km=kernel, timeout=PATIENCE.get(path.stem, 300)).execute()
    del fresh.cells[0]
    assert shown(fresh) == shown(stored)
    assert {"text/html", "image/png"} <= set().union(*shown(stored))
    if path.stem in ANSWERED:
        assert said(fresh).strip().endswith(".")
        assert parts(said(fresh))[0] == parts(said(stored))[0]


@per_notebook
def test_a_notebook_defines_nothing_of_its_own(path: Path) -> None:
    import nbformat
    from IPython.core.inputtransformer2 import TransformerManager

    for cell in code_cells(nbformat.read(path, as_version=4)):
        source = TransformerManager().transform_cell(cell.source)  # magics as calls
        kinds = {type(node) for node in ast.walk(ast.parse(source))}
        assert kinds.isdisjoint({ast.FunctionDef, ast.ClassDef, ast.Lambda})


@per_notebook
def test_a_notebook_is_listed_in_the_documentation(path: Path) -> None:
    listed = (ROOT / "docs" / "notebooks.md").read_text()
    assert f"(../notebooks/{path.name})" in listed


@per_notebook
def test_a_notebook_stays_small(path: Path) -> None:
    assert path.stat().st_size < 300_000
