"""Public traces differ from what today's PyTorch writes, in ways shown here one by one."""

import json

import pytest

from sim.config.errors import InputError
from sim.interface.formats import any_format
from sim.jobs.traces.replay import replayed as replay
from tests.jobs.traces.synthetic import Machine

US = 1e-6
OLD = {
    "cpu_op": "Operator", "user_annotation": "Operator", "cuda_runtime": "Runtime",
    "kernel": "Kernel", "gpu_memcpy": "Memcpy", "gpu_memset": "Memset",
}  # fmt: skip


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trace.json"


def close(us):
    return pytest.approx(us * US, rel=1e-6)


def two_steps():
    rank = Machine()
    for _ in range(2):
        rank.op("aten::mm", 20.0)
        rank.launch(100.0)
        rank.think(20.0)
        rank.launch(30.0, "copy")
        rank.events[-1]["cat"] = "gpu_memcpy"
        rank.synchronize()
    return rank


def rewritten(path, change):
    """The same trace after a change of its document."""
    document = json.loads(path.read_text())
    path.write_text(json.dumps(change(document)))
    return path


def as_of_1_8(document):
    for event in document["traceEvents"]:
        event["cat"] = OLD[event["cat"]]
        event["tid"] = f"stream {event['tid']}" if "stream" in event["args"] else event["tid"]
        event["args"]["external id"] = event["args"].get("correlation", 0)
    return document


@pytest.mark.parametrize("bare", [False, True])
def test_categories_of_torch_1_8_are_those_of_today(path, bare):
    today = replay([two_steps().write(path, steps=2)])
    rewritten(path, as_of_1_8)
    if bare:
        rewritten(path, lambda document: document["traceEvents"])
    assert replay([path]) == today
    assert {time.name for time in any_format.read(path)} == {"gemm"}


@pytest.mark.parametrize(
    "name",
    [
        *("vllm::unified_attention", "vllm/v1/worker/gpu_model_runner.py(862): _init"),
        *("/opt/sglang/python/sglang/srt/x.py(1): f", "sgl_kernel::rmsnorm", "step[DECODE bs=32]"),
        "execute_32_context_0(sq0sk0)_generation_32",
    ],
)
def test_a_trace_of_an_inference_engine_is_refused_in_a_line(path, name):
    rank = two_steps()
    rank.op(name, 1.0)
    with pytest.raises(InputError, match="is a trace of an inference engine"):
        replay([rank.write(path)])
    rank.op("Optimizer.step#SGD.step", 1.0)  # as in reinforcement learning
    assert replay([rank.write(path)]).steps


@pytest.mark.parametrize(
    "document",
    [
        {"traceEvents": [{"ph": "X", "name": "k", "args": {"BeginNs": "1", "EndNs": "2"}}]},
        {"rocprofiler-sdk-tool": [{}]},
    ],
)
def test_a_trace_of_rocprof_is_refused_in_a_line(path, document):
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match="is a trace of rocprof"):
        replay([path])
