"""The tables that come with the project: sourced, licensed, replayed by name."""

import re
from pathlib import Path

import pandas as pd
import pytest

from sim.analysis.validation import shipped
from sim.analysis.validation import validate as validation
from sim.analysis.validation.table import read
from sim.analysis.validation.validate import validate
from sim.config import catalog
from sim.config.errors import InputError
from tests.analysis.validation.test_validate import table

FOLDER = catalog.packaged_root() / shipped.FOLDER
LISTED = dict(re.findall(r"^\| `(\w+)` \| (\d+) \|", (FOLDER / "README.md").read_text(), re.M))
LICENCES = ("Apache-2.0", "MIT", "BSD-3-Clause", "numbers of a paper")


def test_every_table_is_listed_with_its_rows_and_a_licence() -> None:
    rows = {path.stem: str(len(read(path))) for path in FOLDER.glob("*.csv")}
    assert rows == LISTED
    lines = re.findall(r"^\| `\w+` .*", (FOLDER / "README.md").read_text(), re.M)
    assert [line for line in lines if not line.rstrip(" |").endswith(LICENCES)] == []


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.csv")), ids=lambda path: path.stem)
def test_every_row_names_its_source_and_differs_in_its_id(path: Path) -> None:
    rows = read(path)
    assert rows["source"].notna().all()
    assert rows["id"].is_unique


def test_what_is_left_out_for_its_licence_is_not_there() -> None:
    left_out = (FOLDER / "README.md").read_text().partition("## Left out")[2].partition("\n## ")[0]
    names = re.findall(r"^- `(\w+)`", left_out, re.M)
    assert names
    assert [name for name in names if name in LISTED] == []
    sources = pd.concat([read(path)["source"] for path in FOLDER.glob("*.csv")])
    assert not sources.str.contains("Rapid-LLM|docs.nvidia.com").any()


def test_a_table_is_found_by_name_and_the_user_s_own_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert shipped.table("zero_bubble") == FOLDER / "zero_bubble.csv"
    assert {path.stem for path in shipped.tables()} == set(LISTED)
    (tmp_path / shipped.FOLDER).mkdir()
    (tmp_path / shipped.FOLDER / "zero_bubble.csv").write_text("")
    assert shipped.table("zero_bubble").resolve() == tmp_path / "measurements" / "zero_bubble.csv"
    with pytest.raises(InputError, match="did you mean 'zero_bubble'"):
        shipped.table("zero_bubbles")


def test_a_job_that_was_measured_twice_is_simulated_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated = []

    def run(setup, **options):  # type: ignore[no-untyped-def]
        simulated.append(setup.name)
        return real(setup, **options)

    real = validation.answer
    monkeypatch.setattr(validation, "answer", run)
    again = {"id": "two", "step_time_s": 4.0}
    (whole,) = validate([table(tmp_path, {}, {"id": "other", "microbatch": 8}, again)], jobs=1)
    assert simulated == ["one", "other"]
    one, other, two = whole.rows
    assert one.predicted == two.predicted != other.predicted
    assert (one.measured, two.measured, two.id) == (3.528, 4.0, "two")
