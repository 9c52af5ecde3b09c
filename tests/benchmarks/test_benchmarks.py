"""The benchmarks keep a history of ratios, and peers are asked for what they can do."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks import history, peers
from benchmarks.run import HERE, RATIOS

PEER = """
import json, sys
rows = json.load(sys.stdin)
json.dump({"steps": [2.0 * row["step_time_s"] for row in rows], "seconds": 0.5}, sys.stdout)
"""


def test_a_history_is_read_as_it_was_written_and_every_name_has_a_panel(tmp_path: Path) -> None:
    path = tmp_path / "history.csv"
    for ratio in (0.5, 2.0):
        history.append({"ours, at once / theirs": ratio, "other": 1.0}, path)
    points = history.read(path)
    assert [ratio for _, ratio in points["ours, at once / theirs"]] == [0.5, 2.0]
    panels = [axes for axes in history.figure(points).axes if axes.get_visible()]
    assert [axes.get_title("left") for axes in panels] == [*points]
    assert panels[0].lines[1].get_ydata()[-1] == 2.0


def test_ratios_are_of_what_the_last_run_has_measured() -> None:
    parts = json.loads((HERE / "latest.json").read_text())
    for name, ratios in RATIOS.items():
        assert all(ratio > 0.0 for ratio in ratios(parts[name]["figures"]).values()), name
    known = {name for own in RATIOS for name in RATIOS[own](parts[own]["figures"])}
    assert known <= set(history.read())


def test_a_peer_that_is_not_there_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "PYTHON", Path("nowhere"))
    assert peers.steps() == {}
    rings = {"seconds": {"256": 0.1, "1024": 0.1, "4096": 0.1}, "simulated": peers.ASTRA_STEP}
    measured = {"rings": rings, "steps": {}}
    ratios = peers.ratios(measured)
    assert ratios["playing a ring of 4,096 ranks / ASTRA-sim"] == pytest.approx(0.1 / 113.0)
    assert len(peers.rows(measured)) == len(ratios) == 4


def test_a_peer_is_given_the_share_of_the_peak_that_suits_it_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "llm_analysis_steps.py").write_text(PEER)
    monkeypatch.setattr(peers, "HERE", tmp_path)
    monkeypatch.setattr(peers, "PYTHON", Path(sys.executable))
    monkeypatch.setattr(peers, "TABLES", ("korthikanti2022",))
    found = peers.steps()
    assert (found["rows"], found["share"]) == (4, 2.0)
    assert found["theirs"] == pytest.approx(0.0, abs=1e-12)
    assert 0.0 < found["ours"] < 0.1
