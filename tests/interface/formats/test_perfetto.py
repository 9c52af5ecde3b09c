"""A trace holds the timeline's times, opens where PyTorch's traces do, and is never half there."""

import gzip
import json
from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import run
from sim.config.errors import InputError
from sim.engine.accounts import accounts, hidden
from sim.engine.play import play
from sim.engine.timeline import Role, Span, Timeline
from sim.interface.formats import perfetto
from sim.interface.formats.trace_events import counters
from sim.kind import load as load_scenario
from sim.parallel.step import training_step
from sim.program.causes import COMPUTE, DATA, OPTIMIZER, PIPELINE, RECOMPUTE, TENSOR
from sim.scenario.setup import from_scenario

US = 1e6
HTA = "pip install HolisticTraceAnalysis, then pytest tests/interface/formats/test_perfetto.py"


def role(index, stage, ranks=4, pieces=None):
    return Role(
        index=index,
        name=f"stage {stage}",
        stage=stage,
        ranks=ranks,
        first_rank=ranks * index,
        pieces=pieces or (stage,),
    )


def compute(number, phase, microbatch, start, end, parts=None, chunk=0):
    parts = parts if parts is not None else ((COMPUTE, end - start),)
    args = {"phase": phase, "microbatch": microbatch, "chunk": chunk, "parts": parts}
    name = f"{phase}{microbatch}" if phase else parts[0][0]
    return Span(number, "compute", name, parts[0][0], start, end, args)


def meet(number, stream, name, start, end, flights, **facts):
    facts = {"bytes": 4096.0, "ranks": 2, "kind": flights[-1][1]} | facts
    return Span(number, stream, name, flights[-1][0], start, end, {"transfers": flights} | facts)


@pytest.fixture
def timeline():
    """Two stages, one microbatch; stage 1 waits for its input, stage 0 for its gradient."""
    ring = {"ranks": 4, "algorithm": "ring", "protocol": "LL128"}
    return Timeline(
        roles=(role(0, 0), role(1, 1)),
        spans=[
            compute(0, "F", 0, 0.0, 1.0, ((COMPUTE, 0.75), (TENSOR, 0.25))),
            meet(0, "send F", "send F0", 1.0, 1.25, ((PIPELINE, "send", 1.0, 1.25),)),
            meet(0, "compute", "receive B0", 1.0, 4.5, ((PIPELINE, "send", 4.25, 4.5),)),
            compute(0, "B", 0, 4.5, 6.75, ((RECOMPUTE, 0.75), (COMPUTE, 1.25))),
            meet(0, "data", "gradients", 6.75, 7.5, ((DATA, "all_reduce", 7.0, 7.5),), **ring),
            compute(0, "", -1, 7.5, 8.0, ((OPTIMIZER, 0.5),)),
            meet(1, "compute", "receive F0", 0.0, 1.25, ((PIPELINE, "send", 1.0, 1.25),)),
            compute(1, "F", 0, 1.25, 2.25),
            compute(1, "B", 0, 2.25, 4.25),
            meet(1, "send B", "send B0", 4.25, 4.5, ((PIPELINE, "send", 4.25, 4.5),)),
            meet(1, "data", "gradients", 4.25, 7.5, ((DATA, "all_reduce", 7.0, 7.5),), **ring),
        ],
        end=8.0,
    )


def load(path):
    return json.loads(path.read_text())


def slices(events, **wanted):
    return [
        event
        for event in events
        if event["ph"] == "X" and all(event[key] == value for key, value in wanted.items())
    ]


def kernels(timeline, stage, part):
    return [
        (event["ts"] / US, event["dur"] / US)
        for event in slices(perfetto.events(timeline), pid=stage, cat="kernel")
        if part in event["name"]
    ]


def names(events, kind):
    return {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in events
        if event["name"] == kind
    }


def test_every_role_is_a_process_and_every_stream_a_thread(timeline, tmp_path):
    perfetto.write(timeline, tmp_path / "trace.json")
    events = load(tmp_path / "trace.json")["traceEvents"]
    assert names(events, "process_name") == {
        (0, 0): "stage 0 (4 ranks)",
        (1, 0): "stage 1 (4 ranks)",
    }
    threads = names(events, "thread_name")
    assert [threads[0, tid] for tid in (0, 1, 7)] == ["step", "passes", "stream 7 compute"]
    assert {name.split(" ", 2)[-1] for name in threads.values()} == {
        "step",
        "passes",
        "compute",
        "send F",
        "send B",
        "data",
        PIPELINE,
    }
    assert {(e["pid"], e["tid"]) for e in events if e["ph"] == "X"} <= set(threads)
    order = [e["args"]["sort_index"] for e in events if e["name"] == "process_sort_index"]
    assert order == [0, 1]


def test_a_pass_is_split_by_cause_and_its_lag_comes_first(timeline):
    assert kernels(timeline, 0, "forward") == [(0.0, 0.75)]
    assert kernels(timeline, 0, TENSOR) == [(0.75, 0.25)]
    # The backward pass lasts 2.25 s, 0.25 s longer than its parts: the host was late.
    assert kernels(timeline, 0, "recompute") == [(4.75, 0.75)]
    assert kernels(timeline, 0, "backward") == [(5.5, 1.25)]
    assert kernels(timeline, 0, "optimizer") == [(7.5, 0.5)]


def test_waiting_for_a_peer_is_no_communication(timeline):
    assert kernels(timeline, 1, "SendRecv") == [(1.0, 0.25), (4.25, 0.25)]
    assert kernels(timeline, 1, "AllReduce") == [(7.0, 0.5)]


def test_pytorchs_names_are_where_its_tools_look(timeline):
    events = list(perfetto.events(timeline))
    (step,) = slices(events, pid=1, name="ProfilerStep#0")
    assert (step["ts"], step["dur"]) == (0.0, 8 * US)
    passes = [event["name"] for event in slices(events, tid=1)]
    assert passes == ["PP:0F0", "PP:0B0", "optimizer", "PP:1F0", "PP:1B0"]
    for event in slices(events, cat="kernel"):
        assert ("nccl" in event["name"]) == (event["args"]["cause"].kind == "communication")
    (first, _) = [event for event in slices(events) if "AllReduce" in event["name"]]
    assert first["name"] == "ncclDevKernel_AllReduce_RING_LL128"
    assert first["args"]["Collective name"] == "allreduce"
    assert (first["args"]["Group size"], first["args"]["In msg nelems"]) == (4, 4096)
    assert (first["args"]["bytes"], first["args"]["ranks"]) == (4096.0, 4)


def test_chunks_are_numbered_as_pytorch_numbers_pieces_of_the_model():
    spans = [compute(1, "F", 5, 0.0, 1.0, chunk=2)]
    roles = role(0, 0, pieces=(0, 2, 4)), role(1, 1, pieces=(1, 3, 5))
    line = Timeline(roles=roles, spans=spans, end=1.0)
    assert slices(perfetto.events(line), tid=1)[0]["name"] == "PP:5F5"


@pytest.mark.parametrize(("schedule", "last"), [("interleaved", 8), ("zb-v", 15)])
def test_the_pieces_are_those_of_the_schedule(schedule, last):
    setting = {"plan.schedule": schedule, "plan.interleave": 2, "plan.recompute": "none"}
    timeline = run(load_scenario("gpt3-175b-megatron", setting)).timeline
    names = {event["name"] for event in slices(perfetto.events(timeline), pid=0, tid=1)}
    assert {name.partition("F")[0] for name in names if "F" in name} == {"PP:0", f"PP:{last}"}


def test_halves_of_a_backward_pass_have_pytorchs_names_and_ours():
    spans = [compute(0, kind, 3, n, n + 1.0) for n, kind in enumerate("FIW")]
    line = Timeline(roles=(role(0, 0),), spans=spans, end=3.0)
    notes = [event["name"] for event in slices(perfetto.events(line), tid=1)]
    assert notes == ["PP:0F3", "PP:0I3", "PP:0W3"]
    computed = [event["name"] for event in slices(perfetto.events(line), cat="kernel")]
    assert computed == ["forward", "input gradients", "weight gradients"]


def test_a_pass_in_pieces_has_one_note_around_them():
    spans = [
        compute(0, "F", 0, 0.0, 1.0),
        meet(0, "compute", "F0.1", 1.0, 2.0, ((TENSOR, "all_gather", 1.0, 2.0),)),
        compute(0, "F", 0, 2.0, 3.0),
        compute(0, "F", 1, 3.0, 4.0),
    ]
    line = Timeline(roles=(role(0, 0),), spans=spans, end=4.0)
    notes = [(e["name"], e["ts"], e["dur"]) for e in slices(perfetto.events(line), tid=1)]
    assert notes == [("PP:0F0", 0.0, 3 * US), ("PP:0F1", 3 * US, 1 * US)]


def test_gathered_and_scattered_sizes_are_those_of_one_rank():
    flights = ((DATA, "reduce_scatter", 0.0, 1.0),)
    line = Timeline(roles=(role(0, 0),), spans=[meet(0, "data", "x", 0, 1, flights)], end=1.0)
    (event,) = slices(perfetto.events(line), cat="kernel")
    assert (event["args"]["In msg nelems"], event["args"]["Out msg nelems"]) == (4096, 2048)


def test_transfers_in_flight_at_once_are_one_slice():
    flights = (
        (PIPELINE, "send", 0.0, 2.0),
        (PIPELINE, "send", 1.0, 3.0),
        (PIPELINE, "send", 4.0, 5.0),
    )
    line = Timeline(roles=(role(0, 0),), spans=[meet(0, "p2p", "x", 0.0, 5.0, flights)], end=5.0)
    assert kernels(line, 0, "SendRecv") == [(0.0, 3.0), (4.0, 1.0)]


# --- Laws ----------------------------------------------------------------------------------------


@st.composite
def timelines(draw):
    """Any passes and transfers in a row on three streams; transfers may begin early."""
    times = st.floats(1e-7, 20.0, allow_nan=False)
    spans = []
    for stream in ("compute", "data", "send F"):
        clock = draw(times)
        for number in range(draw(st.integers(0, 8))):
            length = draw(times)
            if stream == "compute" and draw(st.booleans()):
                share = draw(st.floats(0, 1.2))
                parts = ((COMPUTE, length * share), (TENSOR, length * 0.1))
                spans.append(compute(0, "F", number, clock, clock + length, parts))
            else:
                begin = clock + length * draw(st.floats(-0.5, 1))
                flights = ((PIPELINE, "send", begin, clock + length),)
                spans.append(meet(0, stream, str(number), clock, clock + length, flights))
            clock += length + draw(st.one_of(st.just(0.0), times))
    end = max((span.end for span in spans), default=0.0)
    return Timeline(roles=(role(0, 0),), spans=spans, end=end)


@given(timelines())
def test_slices_of_one_thread_never_overlap(line):
    threads = defaultdict(list)
    for event in slices(perfetto.events(line)):
        assert event["dur"] >= 0
        threads[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for thread in threads.values():
        assert all(before[1] <= after[0] for before, after in pairwise(thread))


@given(timelines())
def test_times_come_back_within_an_eighth_of_a_microsecond(line):
    notes = slices(perfetto.events(line), tid=1)
    passes = [span for span in line.spans if "parts" in span.args]
    assert len(notes) == len(passes)
    for note, span in zip(notes, passes, strict=True):
        assert note["ts"] / US == pytest.approx(span.start, abs=0.0625e-6)
        assert (note["ts"] + note["dur"]) / US == pytest.approx(span.end, abs=0.0625e-6)


# --- Files ---------------------------------------------------------------------------------------


def test_one_file_a_role_says_which_rank_it_is(timeline, tmp_path):
    paths = perfetto.write_each(timeline, tmp_path / "ranks")
    assert [path.name for path in paths] == ["rank-0.json", "rank-4.json"]
    for path, rank in zip(paths, (0, 4), strict=True):
        trace = load(path)
        assert trace["distributedInfo"] == {"backend": "nccl", "rank": rank, "world_size": 8}
        assert {event["pid"] for event in trace["traceEvents"]} == {rank // 4}


def test_a_gz_file_holds_the_same_trace_and_the_same_bytes_each_time(timeline, tmp_path):
    perfetto.write(timeline, tmp_path / "trace.json")
    perfetto.write(timeline, tmp_path / "one.json.gz")
    perfetto.write(timeline, tmp_path / "two.json.gz")
    packed = (tmp_path / "one.json.gz").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "trace.json").read_bytes()
    assert packed == (tmp_path / "two.json.gz").read_bytes()


def test_a_failure_leaves_the_old_file_and_no_other(timeline, tmp_path):
    path = tmp_path / "trace.json"
    path.write_text("old")
    timeline.spans[3].args["microbatch"] = object()  # no JSON
    with pytest.raises(TypeError):
        perfetto.write(timeline, path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there_is_the_users_mistake(timeline, tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
        perfetto.write(timeline, tmp_path / "nowhere" / "trace.json")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        perfetto.write_each(timeline, tmp_path / "file")


def test_an_empty_timeline_is_a_valid_trace(tmp_path):
    perfetto.write(Timeline(roles=(), spans=[], end=0.0), tmp_path / "trace.json")
    assert load(tmp_path / "trace.json")["traceEvents"] == []


# --- Arrows and counters -------------------------------------------------------------------------


def arrows(events):
    """(name of the process and slice, at both ends) of every arrow."""
    found = []
    for source in (event for event in events if event["ph"] == "s"):
        (target,) = [e for e in events if e["ph"] == "f" and e["id"] == source["id"]]
        assert target["ts"] >= source["ts"]
        assert target["bp"] == "e"
        found.append((around(events, source), around(events, target)))
    return found


def around(events, point):
    """The process and the name of the slice that an end of an arrow lies in."""
    (slice,) = [
        event
        for event in slices(events, pid=point["pid"], tid=point["tid"])
        if event["ts"] <= point["ts"] < event["ts"] + event["dur"]
    ]
    return slice["pid"], slice["name"]


def test_arrows_lead_from_sends_to_receives_and_from_the_last_to_those_who_waited(timeline):
    met = {0: (0, (0, 1)), 1: (1, (1, 0)), 2: (2, None)}
    for span in timeline.spans:
        if "transfers" in span.args:
            number = 2 if span.name == "gradients" else int("B" in span.name)
            span.args["meetings"] = (met[number],)
    send, ring = "ncclDevKernel_SendRecv", "ncclDevKernel_AllReduce_RING_LL128"
    assert arrows(list(perfetto.events(timeline))) == [
        ((0, send), (1, send)),
        ((1, send), (0, send)),
        ((0, ring), (1, ring)),  # stage 0 was ready at 6.75 s, stage 1 at 4.25 s
    ]


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved", "zb-h1"])
def test_every_message_of_a_step_is_an_arrow_from_its_stage_to_its_neighbour(schedule):
    setting = {"plan.schedule": schedule, "plan.recompute": "none"}
    setting |= {"plan.interleave": 2 if schedule == "interleaved" else 1, "plan.global_batch": 16}
    result = run(load_scenario("gpt3-175b-megatron", setting))
    plan, events = result.plan, list(perfetto.events(result.timeline))
    messages = [e for e in events if e["ph"] == "s" and e["name"] == PIPELINE]
    crossings = plan.pp - 1 if plan.interleave == 1 else plan.pp * plan.interleave - 1
    assert len(messages) == 2 * crossings * 16


def test_one_rank_alone_has_no_arrows(timeline):
    assert not [e for e in perfetto.events(timeline, timeline.roles[:1]) if e["ph"] in "sf"]


def integral(events, name):
    """The area under a counter."""
    points = [(e["ts"] / US, *e["args"].values()) for e in events if e["name"] == name]
    return sum(value * (later[0] - at) for (at, value), later in pairwise(points))


def test_counted_flops_are_those_of_the_step():
    result = run(load_scenario("gpt3-175b-megatron"))
    events = list(counters(result.timeline, ()))
    done = 0.0
    for role in result.timeline.roles:
        own = [event for event in events if event["pid"] == role.index]
        done += role.ranks * integral(own, "products (TFLOP/s)")
    executed = result.hfu * result.step_time * result.ranks * 312  # TFLOP/s of an A100
    assert done == pytest.approx(executed, rel=1e-6)


def test_no_device_is_faster_than_its_peak():
    result = run(load_scenario("gpt3-175b-megatron"))
    peaks = [rate.values.max() for rate in result.timeline.rates if rate.unit == "FLOP/s"]
    assert len(peaks) == len(result.timeline.roles)
    assert max(peaks) < 312e12


# --- HolisticTraceAnalysis -----------------------------------------------------------------------


def played(name, **plan):
    setup = from_scenario(
        load_scenario(name, {f"plan.{key}": value for key, value in plan.items()})
    )
    return play(training_step(setup.job), setup.machine)


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("gpt3-175b-megatron", {}),
        ("gpt3-175b-megatron", {"schedule": "zb-h1", "interleave": 1, "recompute": "none"}),
        ("llama3-8b-torchtitan", {}),
    ],
)
def test_holistic_trace_analysis_finds_our_seconds_within_a_percent(name, plan, tmp_path):
    """Compute, exposed communication, idle and overlapped seconds of every role.

    HolisticTraceAnalysis counts from the first kernel of a rank to its last.
    """
    analysis = pytest.importorskip("hta.trace_analysis", reason=HTA)
    record = played(name, **plan)
    perfetto.write_each(record.timeline, tmp_path)
    found = analysis.TraceAnalysis(trace_dir=str(tmp_path))
    table = found.get_temporal_breakdown(visualize=False).set_index("rank")
    overlap = found.get_comm_comp_overlap(visualize=False).set_index("rank")
    for role, account in zip(record.roles, accounts(record), strict=True):
        ours = defaultdict(float)
        for cause, seconds in account.items():
            ours[cause.kind] += seconds
        row = table.loc[role.first_rank] / US
        around = (
            record.step_time - row["kernel_time(us)"]
        )  # before the first kernel, behind the last
        close = {"abs": 0.01 * record.step_time}
        assert row["compute_time(us)"] == pytest.approx(ours["compute"], **close)
        assert row["non_compute_time(us)"] == pytest.approx(ours["communication"], **close)
        assert row["idle_time(us)"] + around == pytest.approx(ours["waiting"], **close)
        beside = sum(hidden(record, role.index, account).values())
        share = overlap.loc[role.first_rank, "comp_comm_overlap_pctg"] / 100
        both = row["non_compute_time(us)"] * share / (1 - share)
        assert both == pytest.approx(beside, **close)


def test_an_exchange_has_the_bytes_of_all_of_its_messages() -> None:
    """Megatron sends an activation and receives a gradient in one call; ranks of a tensor-parallel
    group of 8 send an eighth of a message each, 12,288 columns of fp16 for each of 2,048 tokens."""
    timeline = run("gpt3-175b-megatron", {"plan.schedule": "1f1b", "plan.interleave": 1}).timeline
    spans = [span for span in timeline.spans if span.name.startswith("exchange")]
    messages = [len(span.args["transfers"]) for span in spans]
    message = 2048 * 12288 * 2 / 8
    assert max(messages) == 2
    assert [span.args["bytes"] for span in spans] == [message * count for count in messages]
    names = {span.name for span in spans}
    traced = [event["args"] for event in slices(perfetto.events(timeline), cat="kernel")]
    sent = [args["bytes"] for args in traced if args.get("operation") in names]
    assert sum(sent) == pytest.approx(message * sum(messages))
