"""Traces of PyTorch's profiler: as NCCL writes them, and real ones of gloo."""

import gzip
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from sim import run
from sim.config.errors import InputError
from sim.jobs.traces.kineto import read
from sim.kind import load


def kernel(name: str, dur: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "name": name, "ts": 1.0, "dur": dur, "args": args}


def written(folder: Path, *events: dict[str, Any], **more: Any) -> Path:
    path = folder / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({**more, "traceEvents": events}).encode()))
    return path


GATHER = {
    "Collective name": "_allgather_base", "In msg nelems": 1024, "Out msg nelems": 16384,
    "dtype": "BFloat16", "Group size": 16, "Process Group Name": "1",
    "Process Group Ranks": "[0, 1, 2, ..., 15]",
}  # fmt: skip


def test_kernels_of_one_name_become_their_median(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        *(kernel("void add<float>(int)", dur) for dur in (1.0, 2.0, 9.0)),
        {"ph": "X", "cat": "cpu_op", "name": "aten::add", "ts": 0, "dur": 50.0},
        {"ph": "M", "name": "process_name"},
    )
    (found,) = read(path)
    assert (found.operation, found.name, found.samples) == ("kernel", "add", 3)
    assert found.seconds == pytest.approx(2e-6)


def test_a_collective_has_its_size_group_and_nodes(tmp_path: Path) -> None:
    path = written(
        tmp_path, kernel("ncclDevKernel_AllGather", 80.0, **GATHER), deviceProperties=8 * [{}]
    )
    (found,) = read(path)
    assert (found.operation, found.name, found.ranks, found.nodes) == ("all_gather", "1", 16, 2)
    assert (found.bytes, found.dtype) == (2 * 16384, "bf16")


def test_a_packed_trace_is_read_whole_and_an_archive_of_several_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, kernel("a", 1.0))
    whole = gzip.decompress(path.read_bytes())
    # as cat and tape drives leave it
    path.write_bytes(gzip.compress(whole[:60]) + gzip.compress(whole[60:]) + bytes(512))
    assert len(read(path)) == 1
    archive = tmp_path / "traces.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(path)
    with pytest.raises(InputError, match=r"traces.tar.gz: is a tar archive; run tar xf"):
        read(archive)


@pytest.mark.parametrize("size", [2, 400, 3000])
def test_a_trace_that_is_cut_short_is_named_with_its_line(tmp_path: Path, size: int) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [kernel("a", 1.0)] * 50}, indent=1)[:size])
    with pytest.raises(InputError, match=r"trace.json, line \d+: is not JSON"):
        read(path)


def test_a_compressed_trace_that_is_cut_short_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, *(kernel(f"k{i}", 1.0 + i) for i in range(500)))
    path.write_bytes(path.read_bytes()[:1500])
    with pytest.raises(InputError, match=r"trace.json.gz, line 1: is not JSON"):
        read(path)


def test_json_without_events_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"schemaVersion": 1}')
    with pytest.raises(InputError, match="holds no traceEvents"):
        read(tmp_path / "x.json")


@pytest.mark.long
def test_our_own_trace_is_read(tmp_path: Path) -> None:
    from sim.interface.formats import perfetto

    result = run(load("gpt3-175b-megatron"))
    perfetto.write(result.timeline, tmp_path / "t.json.gz")
    assert "kernel" in {found.operation for found in read(tmp_path / "t.json.gz")}


def profiled(rank: int, folder: str) -> None:
    """Three all-reduces, all-gathers and products under the profiler."""
    import torch
    import torch.distributed as dist
    from torch.profiler import ProfilerActivity, profile

    ones, square = torch.ones(1000), torch.ones(64, 64)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        for _ in range(3):
            _ = square @ square
            dist.all_reduce(ones)
            dist.all_gather([torch.empty(1000), torch.empty(1000)], ones)
    profiler.export_chrome_trace(f"{folder}/{rank}.json")


@pytest.mark.long
def test_a_real_trace_of_two_gloo_ranks_is_read(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from sim.analysis.calibration.timing import process_group

    process_group.run(profiled, 2, str(tmp_path), threads=1)
    for rank in range(2):
        found = {one.operation: one for one in read(tmp_path / f"{rank}.json")}
        reduced, gathered = found["all_reduce"], found["all_gather"]
        assert (reduced.bytes, reduced.ranks, reduced.samples) == (4000, 2, 3)
        assert (gathered.bytes, gathered.dtype) == (8000, "fp32")
        assert "aten::matmul" in {one.name for one in read(tmp_path / f"{rank}.json")}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"pid": ["a"]}, r"event 0: pid = \["),
        ({"tid": {}}, r"event 0: tid = \{\}"),
        ({"cat": []}, "event 0: cat ="),
        ({"args": {"External id": [1]}}, "External id ="),
        ({"args": {"Input type": 5}}, "Input type = 5 is not a list of operands"),
        ({"args": {"Input Dims": [["a"]]}}, "Input Dims ="),
        ({"args": {"Input Dims": [[1 << 50]]}}, "Input Dims ="),
    ],
)
def test_an_event_of_another_form_is_refused_with_its_number(
    tmp_path: Path, change: dict[str, object], said: str
) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [{**kernel("a", 1.0), **change}]}))
    with pytest.raises(InputError, match=said):
        read(path)


def test_shapes_of_lists_of_tensors_are_those_of_all(tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "cpu_op", "name": "gloo:all_reduce", "ts": 0.0, "dur": 5.0}
    args = {"Input type": ["float"], "Input Dims": [[[2, 3], [4]]]}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [{**event, "args": args}]}))
    assert [reading.bytes for reading in read(path) if reading.operation == "all_reduce"] == [40.0]
