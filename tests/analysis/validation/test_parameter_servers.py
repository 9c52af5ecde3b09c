"""Rows of TensorFlow's parameter servers, replayed as shared updates."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.parameter_servers import PARAMETERS, read, replay, text
from sim.config.errors import InputError

ONE: dict[str, str] = {
    "id": "one", "system": "ec2", "model": "resnet50", "gpus": "1", "nodes": "1",
    "batch_per_gpu": "64", "data": "synthetic", "variable_update": "parameter_server",
    "parameter_device": "cpu", "parameter_servers": "", "step_time_s": "1.2",
}  # fmt: skip
DISTRIBUTED = "distributed_replicated (synchronous, parameter servers on the workers)"


def predicted(**changes: str) -> float:
    row = ONE | {"id": "several", "gpus": "4", "step_time_s": "1.3"} | changes
    (found,) = replay([ONE, row])
    assert found.predicted is not None, found.reason
    return found.predicted


def on_nodes(nodes: int, servers: int, **changes: str) -> float:
    return predicted(
        gpus=str(8 * nodes),
        nodes=str(nodes),
        variable_update=DISTRIBUTED,
        parameter_device="",
        parameter_servers=str(servers),
        **changes,
    )


def test_several_gpus_take_one_gpus_step_and_what_sharing_adds():
    for changes in (
        {},
        {"parameter_device": "gpu"},
        {"variable_update": "replicated (NCCL)", "parameter_device": ""},
    ):
        assert 1.2 < predicted(**changes) < 1.4


def test_a_node_pushes_and_pulls_over_its_link_what_lies_on_the_others():
    """Two nodes with a server each: half of the weights in and out, twice, if nothing is hidden."""
    weights, link = 4 * PARAMETERS["resnet50"], 1.25e9 * 0.949
    inside = predicted(gpus="8", variable_update=DISTRIBUTED, parameter_servers="1")
    assert inside < on_nodes(2, 2) < inside + 2 * 0.5 * weights / link + 0.05
    assert on_nodes(2, 2) < on_nodes(2, 1)  # one server has all of it on one link
    assert on_nodes(2, 2) < on_nodes(8, 8) < on_nodes(8, 4)


def test_a_row_without_its_row_of_one_gpu_is_listed_with_the_reason():
    other = ONE | {"id": "other", "gpus": "4", "batch_per_gpu": "32"}
    unknown = ONE | {"id": "unknown", "gpus": "4", "model": "lenet"}
    found = replay([ONE, other, unknown])
    assert [one.predicted for one in found] == [None, None]
    assert "no row of one GPU" in found[0].reason
    assert "lenet" in found[1].reason


def test_errors_are_printed_beside_those_of_sharing_that_is_free():
    row: dict[str, Any] = ONE | {"id": "several", "gpus": "4", "step_time_s": "1.25"}
    said = text(replay([ONE, row]))
    assert "of 1 rows; were sharing free, 4.0 %" in said
    assert "several  1.250 s" in said


def test_a_table_that_is_none_is_refused(tmp_path: Path):
    (tmp_path / "short.csv").write_text("id,system\n1,ec2\n")
    with pytest.raises(InputError, match="column batch_per_gpu is missing"):
        read(tmp_path / "short.csv")
    with pytest.raises(InputError, match="cannot be read"):
        read(tmp_path / "none.csv")
