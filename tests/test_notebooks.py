"""Notebooks run from top to bottom, define nothing, and are stored with what they show."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.test_readme import parts

if TYPE_CHECKING:  # they take seconds to load, which collecting the tests would
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import CapturedIO
    from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
# Those that end in a sentence that a cell computes.
ANSWERED = (
    "choosing_a_layout", "cost_and_goodput", "ddp_fsdp_zero", "experts", "first_what_if",
    "long_context", "my_script_on_512_h100s", "networks_compared", "schedules_and_bubbles",
)  # fmt: skip
NEEDS_TORCH = {"calibrate_a_node", "compression", "my_script_on_512_h100s"}
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

SHORT = {"two_jobs_one_network"}

WIDGET = "application/vnd.jupyter.widget-view+json"
INLINE = "module://matplotlib_inline.backend_inline"

per_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(notebook: "NotebookNode") -> "list[NotebookNode]":
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def said(notebook: "NotebookNode") -> str:
    """What the last cell prints."""
    return "".join(output.get("text", "") for output in code_cells(notebook)[-1].outputs)


def shown(notebook: "NotebookNode") -> list[set[str]]:
    """Per cell, the kinds of output that are stored."""
    return [
        {kind for output in cell.outputs for kind in output.get("data", ())}
        for cell in code_cells(notebook)
    ]


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> "Iterator[InteractiveShell]":
    """What a kernel runs cells with, in this process: nothing is loaded twice, and no socket loses
    a reply."""
    from IPython.core.interactiveshell import InteractiveShell
    from matplotlib import pyplot
    from matplotlib_inline.backend_inline import configure_inline_support

    monkeypatch.syspath_prepend(str(ROOT / "notebooks"))  # their studies
    shell, usual = InteractiveShell.instance(), pyplot.get_backend()
    pyplot.switch_backend(INLINE)
    configure_inline_support(shell, INLINE)
    yield shell
    pyplot.close("all")
    pyplot.switch_backend(usual)
    InteractiveShell.clear_instance()


def run(shell: "InteractiveShell", source: str) -> "CapturedIO":
    """What a cell prints and shows. Raises what it raises."""
    from IPython.utils.capture import capture_output

    with shell.display_trap, capture_output() as captured:
        shell.run_cell(source, store_history=False).raise_error()
    return captured


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[pytest.mark.long] * (path.stem not in SHORT)) for path in NOTEBOOKS],
    ids=lambda path: path.stem,
)
def test_a_notebook_runs_and_shows_what_is_stored(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: "InteractiveShell"
) -> None:
    if path.stem in NEEDS_TORCH:
        pytest.importorskip("torch", reason=f"{path.name} runs torch")
    import nbformat

    monkeypatch.chdir(tmp_path)
    stored = nbformat.read(path, as_version=4)
    ran = [run(shell, cell.source) for cell in code_cells(stored)]
    for cell, kinds in zip(ran, shown(stored), strict=True):
        found = {kind for output in cell.outputs for kind in output.data}
        assert found == kinds or (WIDGET in found and found > kinds)  # its output is shown, too
    assert {"text/html", "image/png"} <= set().union(*shown(stored))
    if path.stem in ANSWERED:
        said_now = ran[-1].stdout
        assert said_now.strip().endswith(".")
        assert parts(said_now)[0] == parts(said(stored))[0]


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
