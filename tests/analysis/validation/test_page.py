"""The pages with every row, and the pictures of errors."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from sim.analysis.validation.validate import ValidatedTable, validate
from sim.interface.cli.main import main
from sim.interface.plots import validation
from sim.interface.views.validation_pages import INDEX, pages
from tests.analysis.validation.test_validate import table

ROWS = (
    {"memory_gb": 30, "memory_kind": "peak"},
    {"id": "two", "tp": 2, "dp": 16, "microbatch": 8},
    {"id": "moon", "cluster": "moon"},
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> ValidatedTable:
    (whole,) = validate([table(tmp_path_factory.mktemp("page"), *ROWS)], jobs=1)
    return whole


def test_every_row_is_on_its_table_s_page_with_what_was_run(runs: ValidatedTable) -> None:
    written = pages([runs], {"runs": "runs.png"})
    assert set(written) == {INDEX, "runs.md"}
    assert "[runs](runs.md) | 2 of 3 |" in written[INDEX]
    page = written["runs.md"]
    one = runs.rows[0]
    assert f"| 3.528 s | {one.predicted:.4g} s | {one.error:+.1%} | 30 GiB |" in page
    assert "| two | gpt 24x2304 | dgx-a100-hdr | megatron-lm-2021 | 32 | tp2 dp16 |" in page
    assert "| moon | moon: no topology named 'moon'" in page
    assert "(runs.png)" in page


def test_errors_are_drawn_against_what_varies_alone(runs: ValidatedTable) -> None:
    drawn = validation.residuals(runs)
    assert drawn is not None
    labels = [axes.get_xlabel() for axes in drawn.axes if axes.get_visible()]
    assert labels == ["measured step time (s)", "tp", "dp", "microbatch"]
    assert validation.residuals(ValidatedTable(name="none", rows=runs.rows[2:])) is None


def test_the_command_writes_pages_and_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table(tmp_path, *ROWS)
    monkeypatch.chdir(tmp_path)
    command = ["validate", "runs.csv", "--jobs", "1", "--quiet", "--page", "pages"]
    shown = CliRunner().invoke(main, command)
    assert shown.exit_code == 0, shown.output
    names = {path.name for path in (tmp_path / "pages").iterdir()}
    assert names == {INDEX, "runs.md", "runs.png"}
    refused = CliRunner().invoke(main, [*command[:-1], "missing/pages"])
    assert refused.exit_code == 2
    assert "no folder 'missing'" in refused.output
