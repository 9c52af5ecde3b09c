"""Regret: what choosing a layout costs, on tables whose best layout is known."""

from pathlib import Path

import pandas as pd
import pytest

from benchmarks.regret import regret
from sim.analysis.validation.table import records, setup_of
from sim.config.errors import InputError
from sim.simulate import answer
from tests.analysis.validation.test_validate import RUN

LAYOUTS = [(1, 4), (1, 8), (2, 4), (2, 8), (4, 4), (4, 8)]  # tp, microbatch


def table(folder: Path, seconds: list[float]) -> Path:
    """Six layouts of one job, measured to take so long."""
    rows = [
        {**RUN, "id": str(i), "gpus": 32, "tp": tp, "dp": 32 // tp, "microbatch": microbatch,
         "step_time_s": time}
        for i, ((tp, microbatch), time) in enumerate(zip(LAYOUTS, seconds, strict=True))
    ]  # fmt: skip
    path = folder / "runs.csv"
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def predicted(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    path = table(tmp_path_factory.mktemp("regret"), [1.0] * 6)
    return [answer(setup_of(record)).step_time for record in records(path)]


def test_exact_predictions_regret_nothing(tmp_path, predicted):
    regrets = regret(table(tmp_path, predicted))
    assert (regrets.groups, regrets.layouts, regrets.median, regrets.mean) == (1, 6, 0.0, 0.0)


def test_regret_is_what_the_layout_ranked_first_takes_beyond_the_best(tmp_path, predicted):
    measured = [2.0 if time == min(predicted) else 1.6 for time in predicted]
    assert regret(table(tmp_path, measured)).median == pytest.approx(0.25)


@pytest.mark.long
def test_layouts_ranked_equal_are_chosen_from_by_chance(tmp_path, predicted):
    """A constant utilisation says the same of all layouts, so that it does as well as chance."""
    regrets = regret(table(tmp_path, [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]))
    assert regrets.chance == pytest.approx(0.5)
    assert regrets.constant == pytest.approx(regrets.chance)


def test_a_table_without_six_layouts_of_a_job_is_refused(tmp_path, predicted):
    path = table(tmp_path, predicted)
    pd.read_csv(path).iloc[:5].to_csv(path, index=False)
    with pytest.raises(InputError, match="no 6 layouts"):
        regret(path)
