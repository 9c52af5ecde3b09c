"""Traces that torch's profiler made of a real job: two ranks of DDP over gloo, on busy cores.

`recorded/ddp.py` made them. Their steps come back within two percent, and every what-if is asked.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sim.interface.cli.main import main
from sim.jobs.traces.reading import read

RANKS = sorted((Path(__file__).parent / "recorded").glob("*.json.gz"))
WEIGHTS = (1024 * 1024 + 1024, 1024 * 1024 + 1024 + 1024 * 8 + 8)  # of a bucket each


def answer(*words: object, traces: list[Path] = RANKS) -> dict[str, Any]:
    result = CliRunner().invoke(main, ["replay", *map(str, traces), *map(str, words), "--json"])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def changed(*words: object) -> float:
    return float(answer(*words)["changed"]["step_time"])


@pytest.mark.parametrize("traces", [RANKS, *([path] for path in RANKS)], ids=["both", "0", "1"])
def test_a_step_comes_back_within_two_percent(traces: list[Path]) -> None:
    found = answer(traces=traces)
    assert found["replayed"]["step_time"] == pytest.approx(found["measured"], rel=0.02)
    assert found["steps"] == 2


def test_collectives_of_gloo_are_told_from_operators() -> None:
    for path in RANKS:
        calls = [kernel.collective for kernel in read(path).kernels if kernel.collective]
        assert sorted(call.bytes for call in calls) == sorted(4.0 * n for n in 2 * WEIGHTS)
        assert {(call.kind, call.ranks) for call in calls} == {("all_reduce", 2)}


def test_every_second_of_a_rank_has_a_reason() -> None:
    played = answer()["replayed"]
    for own in played["ranks"].values():
        reasons = [seconds for why, seconds in own.items() if not why.startswith("overlapped")]
        assert sum(reasons) == pytest.approx(played["step_time"])
        assert own["compute"] > 0.5 * played["step_time"]


def test_faster_kernels_of_a_kind() -> None:
    found = answer("--kernels", "aten::linear=0.5")
    before, after = found["replayed"]["step_time"], found["changed"]["step_time"]
    assert 0.0 < before - after <= 0.505 * found["kernels"]["aten::linear"]


def test_a_slower_host() -> None:
    assert changed("--host", 2) > answer()["replayed"]["step_time"]


@pytest.fixture
def wide(tmp_path: Path) -> str:
    """A cluster of hosts like those of the traces, and more of them."""
    path = tmp_path / "wide.toml"
    path.write_text('like = "cpu-2"\nname = "wide"\ngpus = 64\n')
    return str(path)


def test_another_network_and_more_ranks(wide: str) -> None:
    """Wider groups take longer, and a network that nobody has measured here another time."""
    two, many = (changed("--topology", wide, "--gpus", n) for n in (2, 64))
    assert many > two
    assert changed("--topology", "dgx-1-v100-10gbe", "--gpus", 16) != two


def test_collectives_of_no_known_size_move_to_no_other_network(tmp_path: Path, wide: str) -> None:
    """As of a trace without `record_shapes`; as it was it is replayed all the same."""
    trace = json.loads(gzip.decompress(RANKS[0].read_bytes()))
    for event in trace["traceEvents"]:
        event["args"].pop("Input Dims", None)
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace))
    found = answer(traces=[path])
    assert found["replayed"]["step_time"] == pytest.approx(found["measured"], rel=0.02)
    result = CliRunner().invoke(main, ["replay", str(path), "--topology", wide, "--gpus", "64"])
    assert result.exit_code == 2
    assert "gloo:all_reduce has no size in the trace" in result.stderr
    assert "record_shapes=True" in result.stderr


def test_overlap_on_and_off() -> None:
    as_it_was = answer()["replayed"]["step_time"]
    assert changed("--overlap", "full") < as_it_was < changed("--overlap", "none")


def test_one_operator_removed() -> None:
    found = answer("--remove", "aten::linear")
    gone = found["replayed"]["step_time"] - found["changed"]["step_time"]
    assert 0.0 < gone <= 1.01 * found["kernels"]["aten::linear"]
    without = answer("--remove", "c10d::allreduce_")["changed"]["ranks"]["0"]
    assert without["exposed communication"] == without["overlapped communication"] == 0.0
