"""docs/fidelity.md is written from what `sim validate --ablation --json` prints."""

import re

import pytest

from docs import fidelity
from sim.analysis.validation.ablation import mechanisms

ROW = {
    "mechanism": "time of the host", "table": "a", "rows": 4, "moved": 3,
    "mape": 0.1, "bias": -0.1, "memory_median": None,
    "mape_without": 0.15, "bias_without": -0.15, "memory_median_without": None,
}  # fmt: skip
OTHER = ROW | {"table": "b", "mape_without": 0.07, "bias_without": -0.07}


def test_a_mechanism_s_line_has_means_and_where_it_helps_and_harms() -> None:
    line = fidelity.summary([ROW, OTHER]).splitlines()[-1]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells == [
        "time of the host", "2", "10.0%", "11.0%", "-10.0%", "-11.0%", "", "", "a +5.0", "b -3.0",
    ]  # fmt: skip
    assert "| time of the host | a | 3 of 4 | 10.0% | 15.0% |" in fidelity.full([ROW])


@pytest.mark.parametrize("page", [fidelity.PAGE, fidelity.FULL], ids=lambda page: page.stem)
def test_the_committed_pages_name_mechanisms_that_are_there(page: fidelity.Path) -> None:
    lines = re.findall(r"^\| (?!without|---)([^|]+) \|.*%", page.read_text(), re.M)
    table = fidelity.MARKED.search(page.read_text())
    named = re.findall(r"^\| ([^|]+) \| \d", table[0], re.M) if table else lines
    assert named
    assert set(named) <= {one.name for one in mechanisms()}
