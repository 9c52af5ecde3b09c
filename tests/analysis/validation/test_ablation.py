"""Settings of measured rows, and what mechanisms are worth by them."""

from pathlib import Path

import pytest

from sim.analysis.validation import shipped
from sim.analysis.validation.ablation import ablations, mechanisms, to_dict
from sim.analysis.validation.settings import check
from sim.analysis.validation.table import records, setup_of
from sim.analysis.validation.validate import validate
from sim.config.errors import InputError
from sim.interface.document import terminal
from sim.interface.views import validation as views
from sim.scenario.settings import flat
from tests.analysis.validation.test_validate import RUN, table


def test_settings_reach_stack_device_cluster_and_plan():
    settings = {
        "stack.fusion.norm": False,
        "device.sms": 54,
        "network.bandwidth": "100 Gb/s",
        "plan.microbatch": 8,
    }
    setup = setup_of(RUN, settings)
    assert not setup.job.stack.fusion.norm
    assert setup.job.device.sms == 54
    assert setup.machine.topology.network.bandwidth == 12.5e9
    assert setup.job.plan.microbatch == 8
    assert setup_of(RUN, {}).same_as(setup_of(RUN))


def test_a_setting_of_a_table_that_a_file_has_not_says_nothing_there():
    without = {**RUN, "cluster": "b200-node", "gpus": 8, "dp": 8, "precision": "bf16"}
    assert setup_of(without, {"network.bandwidth": "1 Gb/s"}).same_as(setup_of(without))


@pytest.mark.parametrize(
    ("key", "complaint"),
    [
        ("nework.bandwidth", "did you mean 'network'"),
        ("model.seq", "rows take no key"),
        ("stack", "rows take no key"),
        ("stack.fusionn.norm", "no file that these rows name has the table"),
        ("stack.fusion.normm", "unknown key 'normm'"),
        ("device.smss", "unknown key 'smss'"),
    ],
)
def test_settings_that_no_row_takes_are_refused(key: str, complaint: str):
    with pytest.raises(InputError, match=complaint):
        check({key: 1}, [RUN], all_used=True)


def test_every_mechanism_that_comes_along_is_taken_by_a_row():
    rows = [row for path in shipped.tables() for row in records(path)]
    settings = {key: value for one in mechanisms() for key, value in flat(one.without)}
    check(settings, rows, all_used=True)


def test_at_most_so_many_rows_are_spread_evenly(tmp_path: Path):
    path = table(tmp_path, *({"id": str(n)} for n in range(6)))
    (kept,) = validate([path], at_most=3, jobs=1)
    assert [run.id for run in kept.rows] == ["0", "2", "4"]


def test_a_mechanism_is_worth_what_the_same_rows_lose_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "measurements"
    folder.mkdir()
    (folder / "mechanisms.toml").write_text(
        '[[mechanism]]\nname = "memory"\nwithout = { "device.stream.bandwidth" = 1.0 }\n'
        '[[mechanism]]\nname = "graphs"\nwithout = { "plan.cuda_graph" = [] }\n'
    )
    monkeypatch.chdir(tmp_path)
    path = table(tmp_path, {}, {"id": "two", "microbatch": 8})
    (found,) = ablations([path], jobs=1)
    assert (found.mechanism, found.moved, found.rows) == ("memory", 2, 2), "no row has graphs"
    assert found.before["bias"] > found.after["bias"], "memory that is faster makes steps shorter"
    (with_all,) = validate([path], jobs=1)
    (without,) = validate([path], settings={"device.stream.bandwidth": 1.0}, jobs=1)
    for kept, side in ((with_all, found.before), (without, found.after)):
        errors = [run.error for run in kept.rows]
        assert side["bias"] == pytest.approx(sum(errors) / 2)
    assert "without memory (1 tables" in terminal.text(views.ablations([found]))
    assert to_dict([found])[0]["bias_without"] == found.after["bias"]
