"""Public traces differ from what today's PyTorch writes, in ways shown here one by one."""

import json

import pytest

from sim.config.errors import InputError
from sim.hardware.cluster import topology as topologies
from sim.interface.formats import any_format
from sim.jobs.traces.changes import Changes
from sim.jobs.traces.reading import read
from sim.jobs.traces.replay import replayed as replay
from sim.scenario.setup import machine
from tests.jobs.traces.synthetic import LAUNCH, Machine

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


def ahead(update=""):
    """Three steps of 200 us on the device, which first has nothing to do for 150 us. The host is
    done with each after 80 us and then runs ahead."""
    rank = Machine()
    rank.think(150.0)
    marks = []
    for _ in range(3):
        marks.append(rank.now)
        for name in ("forward", "backward"):
            rank.think(35.0)
            rank.launch(100.0, name)
        if update:
            rank.add("user_annotation", update, rank.now - 1.0, 1.0, tid=1)
    return rank, marks


def marked(rank, marks, path):
    """The trace with a mark for each step, the first of which begins with the trace."""
    for number, (begin, end) in enumerate(
        zip([rank.start, *marks[1:]], [*marks[1:], rank.now], strict=True)
    ):
        rank.add("user_annotation", f"ProfilerStep#{number}", begin, end - begin, tid=1)
    path.write_text(json.dumps({"traceEvents": rank.events}))
    return path


def test_a_step_lasts_from_an_end_on_the_device_to_the_next(path):
    rank, marks = ahead()
    found = replay([marked(rank, marks, path)], Changes(kernels=(("forward", 2.0),)))
    assert found.steps == 3
    assert [found.measured, found.replayed.step_time, found.explained] == [close(200.0)] * 3
    assert found.changed.step_time == close(300.0)
    assert found.kernels == {"forward": close(100.0), "backward": close(100.0)}
    assert found.replayed.ranks[0]["compute"] == close(200.0)
    assert found.changed.ranks[0]["compute"] == close(300.0)


def test_a_rank_that_began_later_shares_the_step_of_the_job(tmp_path):
    paths = []
    for number in range(2):
        rank, marks = Machine(number, start=1000.0), []
        rank.think(300.0 * number)
        for _ in range(3):
            marks.append(rank.now)
            rank.launch(200.0)
            rank.wait(20, 7)
            rank.reduce(50.0 + (0.0 if number else 300.0 * (len(marks) == 1)), ranks=2)
            rank.wait(7, 20)
        paths.append(marked(rank, marks, tmp_path / f"{number}.json"))
        document = json.loads(paths[-1].read_text())
        document["distributedInfo"] = {"rank": number, "world_size": 2}
        paths[-1].write_text(json.dumps(document))
    found = replay(paths)
    assert found.measured == close(250.0)
    assert found.replayed.step_time == pytest.approx(found.measured, rel=0.01)
    for seconds in found.replayed.ranks.values():
        assert seconds["other ranks"] == pytest.approx(0.0, abs=1e-6)
        assert seconds["exposed communication"] == close(50.0)


def test_a_step_without_kernels_leaves_the_steps_together(path):
    rank, marks = ahead()
    marks = [*marks, rank.now]
    rank.think(30.0)
    found = replay([marked(rank, marks, path)])
    assert found.steps == 4
    whole = close((rank.end - rank.start) / 4)
    assert (found.measured, found.replayed.step_time) == (whole, whole)


def test_steps_end_with_the_optimizer_where_no_step_is_marked(path):
    rank, _ = ahead("Optimizer.step#SGD.step")
    rank.think(1000.0)  # what comes behind the last update is no step
    path.write_text(json.dumps({"traceEvents": rank.events}))
    found = replay([path])
    assert (found.steps, found.measured) == (3, close(200.0))


def test_of_two_optimizers_the_later_ends_a_step(path):
    rank = Machine()
    for _ in range(3):
        for name in ("first", "second"):
            rank.launch(100.0, name)
            rank.add("cpu_op", f"Optimizer.step#{name}", rank.now, 1.0, tid=1)
            rank.think(2.0)
    path.write_text(json.dumps({"traceEvents": rank.events}))
    found = replay([path])
    assert (found.steps, found.measured) == (3, close(200.0))


def test_a_single_update_marks_no_step(path):
    rank = Machine()
    rank.launch(100.0)
    rank.add("user_annotation", "Optimizer.step#SGD.step", rank.start, 1.0, tid=1)
    path.write_text(json.dumps({"traceEvents": rank.events}))
    found = replay([path])
    assert found.steps == 1
    assert found.kernels == {"gemm": close(100.0)}


def test_a_kernel_that_outlasts_all_steps_leaves_them_together(path):
    rank, marks = ahead()
    rank.events[1]["dur"] = 5000.0
    found = replay([marked(rank, marks, path)])
    assert found.measured * 3 == close(rank.events[1]["ts"] + 5000.0 - rank.start)


@pytest.mark.parametrize(
    "name",
    [
        "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*)",
        "void deep_ep::internode_ll::combine<true, 7168, 9>(void*)",
        "void dpsk::ep::internode::cached_notify<false>(int, int)",
        "void dpsk::ep::internode::notify_dispatch<false, 8>(int const*)",
    ],
)
def test_the_exchange_of_tokens_among_experts_is_communication(path, name):
    rank = Machine()
    rank.launch(100.0)
    rank.wait(27, 7)
    rank.launch(80.0, name, stream=27)
    seconds = replay([rank.write(path)]).replayed.ranks[0]
    assert seconds["exposed communication"] == close(80.0)
    assert seconds["compute"] == close(100.0)
    (call,) = [kernel.collective for kernel in read(path).kernels if kernel.collective]
    assert (call.kind, call.ranks, call.nodes) == ("all_to_all", 8, 1)
    with pytest.raises(InputError, match="has no size in the trace"):
        replay([path], Changes(machine=machine(topologies.load("dgx-a100-hdr"), None, (), "x")))


@pytest.mark.parametrize("name", ["dpsk::ep::cuda::get_dispatch_layout<256>", "dispatch_kernel"])
def test_the_layout_of_tokens_among_experts_is_computed(path, name):
    rank = Machine()
    rank.launch(80.0, name)
    assert replay([rank.write(path)]).replayed.ranks[0]["compute"] == close(80.0)


OPERATORS = {  # of the collective of a kernel, the outermost first
    "nccl": [
        ("c10d::allreduce_", {}),
        ("record_param_comms", {"Input type": ["TensorList", "Scalar"], "Input Dims": [[], []]}),
        ("nccl:all_reduce", {"Input type": ["float"], "Input Dims": [[1000, 4]]}),
    ],
    "record": [
        ("c10d::allreduce_", {"Input type": ["float"] * 2, "Input Dims": [[1000, 4]] * 2}),
        ("record_param_comms", {"Input type": ["float", "Scalar"], "Input Dims": [[4000], []]}),
    ],
    "named": [
        ("record_param_comms", {
            "Collective name": "allreduce", "dtype": "Float", "In msg nelems": 4000,
            "Out msg nelems": 4000, "Group size": 2, "Process Group Name": "7",
        }),
        ("nccl:all_reduce", {}),
    ],
}  # fmt: skip


def sent_within(path, operators, job=None):
    """The collective of a kernel that says nothing of itself, launched within these operators."""
    rank = Machine()
    rank.launch(10.0)
    for name, args in operators:
        rank.add("cpu_op", name, rank.now, 30.0, tid=1, **args)
        rank.now += 1.0
    rank.launch(100.0, "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)", 20)
    rank.write(path)
    rewritten(path, lambda document: document | {"distributedInfo": job or {"world_size": 8}})
    (call,) = [kernel.collective for kernel in read(path).kernels if kernel.collective]
    return call


@pytest.mark.parametrize(("told", "ranks"), [("nccl", 8), ("record", 8), ("named", 2)])
def test_the_size_of_a_collective_is_that_of_the_operator_around_it(path, told, ranks):
    call = sent_within(path, OPERATORS[told])
    assert (call.kind, call.bytes, call.ranks, call.lacks) == ("all_reduce", 16e3, ranks, "")
    (reading,) = [time for time in any_format.read(path) if time.operation == "all_reduce"]
    assert (reading.bytes, reading.ranks, reading.dtype) == (16e3, ranks, "fp32")


def test_an_all_gather_counts_what_it_makes(path):
    shard = {"Input type": ["c10::BFloat16"], "Input Dims": [[1000]]}
    call = sent_within(path, [("nccl:_all_gather_base", shard)])
    assert (call.kind, call.bytes, call.ranks) == ("all_gather", 16e3, 8)


@pytest.mark.parametrize(
    ("operators", "job"),
    [
        ([], None),  # around another kernel
        ([("nccl:all_reduce", {})], None),  # without recorded shapes
        ([("nccl:barrier", OPERATORS["nccl"][-1][1])], None),
        (OPERATORS["nccl"], {"rank": 0}),
        (OPERATORS["nccl"], {"world_size": 8, "pg_config": [{"pg_size": 8}, {"pg_size": 2}]}),
    ],
)
def test_a_collective_of_which_operators_tell_too_little_has_no_size(path, operators, job):
    assert sent_within(path, operators, job).bytes == 0.0


def left_over():
    """A step of 200 us behind 300 us that the step before has left to do, of unknown launches."""
    rank = Machine()
    rank.free[7] = rank.start - 50.0  # the first of these began before the step
    for us in (100.0, 200.0):
        rank.add("kernel", "earlier", rank.free[7], us, tid=7, correlation=-1, stream=7)
        rank.free[7] += us
    rank.free[7] += 50.0
    for _ in range(2):
        rank.launch(100.0)
    return rank


def test_a_single_step_begins_where_the_device_ends_the_step_before_it(path):
    found = replay([left_over().write(path)], Changes(kernels=(("gemm", 0.5),)))
    assert found.steps == 1
    assert [found.measured, found.replayed.step_time] == [close(250.0)] * 2
    assert found.explained == close(200.0)
    assert found.changed.step_time == close(150.0)
    assert found.kernels == {"gemm": close(200.0)}


def test_the_host_waits_for_what_the_step_before_left_over(path):
    rank = left_over()
    rank.events, begun = rank.events[:2], rank.now
    rank.now = rank.start
    rank.free[7] = rank.start + 250.0
    rank.synchronize()
    rank.launch(100.0)
    found = replay([rank.write(path)], Changes(host=3.0))
    assert begun > rank.start
    assert found.measured == found.replayed.step_time == close(LAUNCH + 100.0)
    assert found.changed.step_time == close(3 * LAUNCH + 100.0)


def test_a_collective_left_over_meets_no_collective_of_the_step(tmp_path):
    paths = []
    for number in range(2):
        rank = Machine(number)
        if number:
            name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
            rank.add("kernel", name, rank.start, 30.0, tid=20, correlation=-1, stream=20)
            rank.free[20] = rank.start + 30.0
        rank.think(50.0)
        rank.reduce(100.0, ranks=2)
        paths.append(rank.write(tmp_path / f"{number}.json", world=2))
    found = replay(paths)
    assert found.measured == pytest.approx(found.replayed.step_time)


def test_a_kernel_whose_launch_was_not_recorded_keeps_its_place(path):
    rank = Machine()
    for name in ("first", "unknown", "last"):
        rank.launch(100.0, name)
    (launch,) = [e for e in rank.events if e["args"].get("correlation") == 2 and e["tid"] == 1]
    rank.events.remove(launch)
    found = replay([rank.write(path)], Changes(kernels=(("unknown", 2.0),)))
    assert found.replayed.step_time == found.explained == close(LAUNCH + 300.0)
    assert found.changed.step_time == close(LAUNCH + 400.0)


@pytest.mark.parametrize(
    ("kernels", "lag", "explained"), [(12, 2.0, 24.0), (9, 2.0, 0.0), (12, 40.0, 0.0)]
)
def test_the_usual_delay_of_a_device_is_explained(path, kernels, lag, explained):
    """Of many kernels, and not of long delays; an unusual lag is as long as it is."""
    rank = Machine()
    for n in range(kernels):
        rank.launch(100.0, lag=lag if n else 0.0)
    rank.launch(100.0, lag=lag + 60.0)
    found = replay([rank.write(path)])
    assert found.measured == pytest.approx(found.replayed.step_time)
    unexplained = found.replayed.step_time - found.explained
    assert unexplained == close(kernels * lag + 60.0 - explained)


@pytest.mark.parametrize("told", [False, True])
def test_a_kernel_waits_for_a_collective_behind_which_another_was_launched(path, told):
    """As where parameters are gathered ahead: the trace names no event, and perhaps no stream."""
    rank = Machine()
    rank.launch(10.0)
    rank.reduce(300.0)
    ended = rank.free[20]
    rank.reduce(300.0)
    rank.wait(7, 20, told, (-1, ended))
    rank.launch(500.0, "gathered")
    found = replay([rank.write(path)], Changes(kernels=(("nccl", 1.5),)))
    assert found.explained == pytest.approx(found.measured)
    assert found.changed.step_time - found.measured == close(150.0)


def test_marks_of_several_threads_are_of_one_step(path):
    rank, marks = ahead()
    document = json.loads(marked(rank, marks, path).read_text())
    for event in [e for e in document["traceEvents"] if e["name"].startswith("ProfilerStep")]:
        document["traceEvents"].append(event | {"ts": event["ts"] + 3.0, "tid": 2})
    path.write_text(json.dumps(document))
    found = replay([path])
    assert (found.steps, found.measured) == (3, close(200.0))


def test_kernels_of_msccl_are_collectives(path):
    rank = Machine()
    rank.launch(80.0, "mscclKernel_Sum_float_Simple_none", stream=20)
    seconds = replay([rank.write(path)]).replayed.ranks[0]
    assert seconds["exposed communication"] == close(80.0)


def test_a_host_without_a_device_lags_behind_nothing(path):
    """All marked steps count; of steps that optimizers end, the first begins with the trace."""
    rank = Machine()
    rank.think(500.0)
    for us in (100.0, 200.0, 300.0):
        rank.op("aten::mm", us)
        rank.think(us)
        rank.add("user_annotation", "Optimizer.step#SGD.step", rank.now - 1.0, 1.0, tid=1)
    rank.write(path)
    rewritten(path, lambda document: {"traceEvents": document["traceEvents"][:-1]})
    found = replay([path])
    assert (found.steps, found.measured, found.replayed.step_time) == (
        2,
        close(250.0),
        close(250.0),
    )
    rank.write(path, steps=3)
    found = replay([path])
    assert (found.steps, found.measured) == (3, close(1100.0 / 3))


def test_a_launch_that_finds_the_queue_full_waits_for_the_kernel_that_makes_room(path):
    """1100 kernels of 20 us: from the 1023rd on each launch lasts until a kernel has ended."""
    rank, ends = Machine(), []
    for n in range(1100):
        begin = rank.now
        full = n >= 1022
        rank.now = max(begin, ends[n - 1022] if full else begin)
        rank.launch(20.0)
        call, kernel = rank.events[-2:]
        call["dur"] += call["ts"] - begin
        call["ts"] = begin
        ends.append(kernel["ts"] + kernel["dur"])
    rank.synchronize()
    rank.write(path)
    faster = replay([path], Changes(kernels=(("gemm", 0.5),)))
    assert faster.measured == pytest.approx(faster.replayed.step_time, rel=1e-3)
    assert faster.changed.step_time == pytest.approx(faster.measured / 2, rel=0.01)
