"""Traces of known answers: the step comes back, what it waits for, and what-ifs are right."""

import gzip
import json

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import sim
from sim.config.errors import InputError
from sim.hardware.cluster import topology as topologies
from sim.interface.cli.main import main
from sim.interface.formats import perfetto
from sim.jobs.traces.changes import Changes, Network
from sim.jobs.traces.program import program
from sim.jobs.traces.reading import read
from sim.jobs.traces.replay import replayed as replay
from sim.kind import load
from sim.scenario.setup import machine
from tests.jobs.traces.synthetic import LAUNCH, Machine

US = 1e-6


def us(seconds):
    return seconds / US


def close(value):
    return pytest.approx(value, abs=0.01)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trace.json"


def launch_bound(path):
    """Ten kernels of 10 us, each launched 50 us after the one before."""
    rank = Machine()
    for _ in range(10):
        rank.think(45.0)
        rank.launch(10.0)
    return rank.write(path)


def device_bound(path):
    """Ten kernels of 100 us, launched without pause."""
    rank = Machine()
    for _ in range(10):
        rank.launch(100.0)
    return rank.write(path)


def overlapped(path, told=False):
    """200 us, an all-reduce of 300 us beside 200 us, 100 us that wait for it."""
    rank = Machine()
    rank.launch(200.0)
    rank.wait(20, 7, told)
    rank.reduce(300.0)
    rank.launch(200.0)
    rank.wait(7, 20, told)
    rank.launch(100.0, "tail")
    return rank.write(path)


# --- Reproduction --------------------------------------------------------------------------------


@pytest.mark.parametrize("trace", [launch_bound, device_bound, overlapped])
def test_a_step_comes_back_and_is_explained(trace, path):
    found = replay([trace(path)])
    assert found.replayed.step_time == pytest.approx(found.measured)
    assert found.explained == pytest.approx(found.measured)
    whole = sum(s for why, s in found.replayed.ranks[0].items() if "overlapped" not in why)
    assert whole == pytest.approx(found.measured)


@st.composite
def programs(draw):
    """What a host does: think, launch on one of three streams, wait, synchronize."""
    times = st.floats(0.5, 300.0)
    return draw(
        st.lists(
            st.one_of(
                st.tuples(st.just("think"), times),
                st.tuples(st.just("launch"), times, st.sampled_from([7, 20, 24]), st.floats(0, 9)),
                st.tuples(st.just("wait"), st.sampled_from([(7, 20), (20, 7), (24, 7), (7, 24)])),
                st.tuples(st.just("synchronize")),
            ),
            min_size=1,
            max_size=25,
        )
    )


@settings(deadline=None)
@given(programs(), st.booleans())
def test_any_step_comes_back_within_two_percent(tmp_path_factory, does, told):
    rank = Machine()
    rank.launch(10.0)
    for what, *how in does:
        if what == "launch":
            rank.launch(how[0], stream=how[1], lag=how[2])
        elif what == "wait":
            rank.wait(*how[0], told)
        else:
            getattr(rank, what)(*how)
    found = replay([rank.write(tmp_path_factory.mktemp("random") / "trace.json")])
    assert us(found.measured) == pytest.approx(rank.end - rank.start, abs=0.01)
    assert found.replayed.step_time == pytest.approx(found.measured, rel=0.02)


def test_several_steps_are_played_in_a_row(path):
    rank = Machine()
    for _ in range(3):
        rank.think(20.0)
        rank.launch(100.0)
        rank.synchronize()
    found = replay([rank.write(path, steps=3)])
    assert found.steps == 3
    assert us(found.measured) == us(found.replayed.step_time) == close(125.0)


def test_what_runs_before_the_first_step_is_not_its_work(path):
    rank = Machine()
    rank.launch(500.0, "earlier")
    rank.synchronize()
    rank.start = rank.now
    rank.launch(100.0)
    found = replay([rank.write(path)])
    assert list(found.kernels) == ["gemm"]
    assert us(found.measured) == close(105.0)


def test_kernels_of_a_cuda_graph_are_launched_together(path):
    rank = Machine()
    rank.launch(100.0)
    begin, number = rank.free[7], rank.number
    for n in range(4):  # of the same call
        args = {"correlation": number, "stream": 7}
        rank.add("kernel", f"inner {n}", begin + 50.0 * n, 50.0, tid=7, **args)
    rank.free[7] = begin + 200.0
    rank.synchronize()
    found = replay([rank.write(path)], Changes(kernels=(("inner", 0.5),)))
    assert found.explained == pytest.approx(found.measured)
    assert us(found.measured - found.changed.step_time) == close(100.0)


def test_our_own_traces_are_replayed(tmp_path):
    result = sim.run(load("llama3-8b-torchtitan"))
    (path,) = perfetto.write_each(result.timeline, tmp_path)
    found = replay([path])
    assert found.replayed.step_time == pytest.approx(result.step_time, rel=1e-3)


# --- What a step waits for -----------------------------------------------------------------------


def test_a_step_bound_by_launches_waits_for_the_host(path):
    own = replay([launch_bound(path)]).replayed.ranks[0]
    assert us(own["host"]) == close(10 * 50.0 - 9 * 10.0)
    assert us(own["compute"]) == close(100.0)


def test_a_step_bound_by_the_device_computes(path):
    own = replay([device_bound(path)]).replayed.ranks[0]
    assert us(own["compute"]) == close(1000.0)
    assert us(own["host"]) == close(LAUNCH)


def test_what_nothing_explains_is_idle(path):
    rank = Machine()
    for _ in range(4):
        rank.launch(100.0, lag=2.0)
    found = replay([rank.write(path)])
    assert us(found.replayed.ranks[0]["idle"]) == close(4 * 2.0)
    assert us(found.replayed.step_time - found.explained) == close(4 * 2.0)


@pytest.mark.parametrize("told", [False, True])
def test_a_collective_is_exposed_where_nothing_runs_beside_it(path, told):
    own = replay([overlapped(path, told)]).replayed.ranks[0]
    assert us(own["exposed communication"]) == close(100.0)
    assert us(own["overlapped communication"]) == close(200.0)


def pair(tmp_path, late=100.0):
    """Two ranks; the second computes longer before an all-reduce of 50 us."""
    paths = []
    for number, extra in enumerate((0.0, late)):
        rank = Machine(number)
        rank.launch(200.0 + extra, "gemm" if number == 0 else "slow gemm")
        rank.wait(20, 7)
        rank.reduce(50.0 + late - extra, ranks=2)
        rank.wait(7, 20)
        rank.launch(10.0, "tail")
        rank.synchronize()
        paths.append(rank.write(tmp_path / f"{number}.json", world=2))
    return paths


def test_a_rank_that_comes_early_waits_for_the_other(tmp_path):
    found = replay(pair(tmp_path))
    first, second = found.replayed.ranks[0], found.replayed.ranks[1]
    assert us(first["other ranks"]) == close(100.0)
    assert us(first["exposed communication"]) == us(second["exposed communication"]) == close(50.0)
    assert second["other ranks"] == 0.0


def test_nobody_waits_for_a_rank_that_is_made_as_fast(tmp_path):
    faster = Changes(kernels=(("slow gemm", 2 / 3),))
    found = replay(pair(tmp_path), faster)
    assert us(found.replayed.step_time - found.changed.step_time) == close(100.0)
    assert us(found.changed.ranks[0]["other ranks"]) == close(0.0)


# --- What if -------------------------------------------------------------------------------------


def changed(path, **changes):
    return us(replay([path], Changes(**changes)).changed.step_time)


def test_faster_kernels_help_where_the_device_is_what_is_waited_for(path):
    assert changed(device_bound(path), kernels=(("gemm", 0.5),)) == close(LAUNCH + 500.0)
    assert changed(launch_bound(path), kernels=(("gemm", 0.5),)) == close(10 * 50.0 + 5.0)


def test_a_faster_host_helps_where_launches_are(path):
    assert changed(launch_bound(path), host=0.5) == close(10 * 25.0 + 10.0)
    assert changed(device_bound(path), host=0.5) == close(LAUNCH / 2 + 1000.0)


def test_the_host_waits_for_kernels_that_become_slower(path):
    rank = Machine()
    for _ in range(2):
        rank.launch(100.0)
        rank.synchronize()
    assert changed(rank.write(path), kernels=(("gemm", 3.0),)) == close(2 * (LAUNCH + 300.0))


@pytest.mark.parametrize("told", [False, True, -1])
def test_what_waits_for_a_collective_moves_with_it(path, told):
    """Whether the trace names the stream that is waited for, or says that it knows of none."""
    as_it_was = us(replay([overlapped(path, told)]).measured)
    assert changed(path, kernels=(("nccl", 2.0),)) == close(as_it_was + 300.0)


@pytest.mark.parametrize("told", [True, -1])
def test_what_waits_for_an_event_waits_for_nothing_behind_it(path, told):
    rank = Machine()
    rank.launch(300.0, "before", stream=20)
    event = rank.record(20)
    rank.launch(100.0, "behind", stream=20)
    rank.wait(7, 20, told, event)
    rank.launch(500.0, "tail")
    as_it_was = us(replay([rank.write(path)]).measured)
    assert changed(path, kernels=(("before", 2.0),)) == close(as_it_was + 300.0)
    assert changed(path, kernels=(("behind", 3.0),)) == close(as_it_was)


def test_without_overlap_all_follows_and_with_all_of_it_nothing_waits(path):
    overlapped(path)
    as_it_was = us(replay([path]).measured)
    assert changed(path, overlap="none") == close(as_it_was + 200.0)
    assert changed(path, overlap="full") == close(as_it_was - 100.0)


def test_on_another_network_collectives_last_as_its_library_says(path):
    overlapped(path)
    before = us(replay([path]).measured)
    (call,) = [kernel.collective for kernel in read(path).kernels if kernel.collective]
    for name, gpus in (("dgx-a100-hdr", 8), ("dgx-a100-hdr", 64)):
        topology = topologies.load(name).with_gpus(gpus)
        other = machine(topology, None, (), name)
        seconds = us(Network(other, 8).seconds(call))
        beside = max(seconds, 200.0) - 300.0
        assert changed(path, machine=other) == close(before + beside)
        alone = other.call("all_reduce", 2e6, seconds_shape(gpus, topology))
        assert seconds == close(us(alone.duration(other.backend.call_cost(alone))))


def seconds_shape(gpus, topology):
    from sim.engine.group_loads import shape_of

    return shape_of(range(gpus), topology)


def test_a_removed_operator_takes_its_kernels_and_its_host_time_along(path):
    rank = Machine()
    for name in ("aten::mm", "aten::clip"):
        rank.op(name, 20.0 + LAUNCH)
        rank.think(20.0)
        rank.launch(100.0, name.removeprefix("aten::"))
        rank.synchronize()
    found = replay([rank.write(path)], removed="aten::clip")
    assert us(found.measured) == close(250.0)
    assert us(found.changed.step_time) == close(125.0)


# --- Real traces ---------------------------------------------------------------------------------


def test_a_step_that_torch_recorded_on_a_cpu_comes_back(tmp_path):
    torch = pytest.importorskip("torch")
    from torch.profiler import ProfilerActivity, profile, schedule

    path = tmp_path / "cpu.json"
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=1, active=2, repeat=1),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
    ) as profiler:
        for _ in range(3):
            model(torch.ones(16, 64)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    found = replay([path], removed="aten::addmm")
    assert found.steps == 2
    assert found.replayed.step_time == pytest.approx(found.measured, rel=0.02)
    assert 0.0 < found.replayed.ranks[0]["compute"] < found.measured
    events = json.loads(path.read_text())["traceEvents"]
    products = sum(event["dur"] for event in events if event["name"] == "aten::addmm")
    gain = us(found.replayed.step_time - found.changed.step_time)
    assert gain == pytest.approx(products / 2, rel=0.02)


# --- The command, and mistakes -------------------------------------------------------------------


def run(*words):
    return CliRunner().invoke(main, ["replay", *map(str, words)])


def test_the_command_prints_what_json_has(path):
    device_bound(path)
    answer = json.loads(run(path, "--kernels", "gemm=0.5", "--json").stdout)
    assert us(answer["changed"]["step_time"]) == close(505.0)
    shown = run(path, "--kernels", "gemm=0.5").stdout
    assert "1 ms" in shown or "1.00" in shown
    assert "the change: -49.8% a step" in shown


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--kernels", "gemm"], "--kernels: 'gemm' is not NAME=FACTOR; write gemm=0.5"),
        (["--kernels", "gemm=-1"], "--kernels gemm: "),
        (["--kernels", "conv=0.5"], "--kernels: no kernel is called 'conv'; there are gemm"),
        (["--host", "zero"], "--host: "),
        (["--gpus", "8"], "--gpus: changes no collective by itself; name the --topology too"),
        (["--topology", "nowhere"], "--topology: "),
        (["--remove", "aten::nothing"], "--remove: trace.json has no operator 'aten::nothing'"),
    ],
)
def test_mistakes_are_one_line(path, words, complaint):
    device_bound(path)
    result = run(path, *words)
    assert result.exit_code == 2
    assert complaint in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_rank_twice_and_unequal_steps_are_refused(tmp_path):
    rank = Machine()
    rank.launch(10.0)
    one = rank.write(tmp_path / "one.json")
    with pytest.raises(InputError, match="is a second trace of rank 0"):
        replay([one, one])
    rank = Machine(1)
    rank.launch(10.0)
    two = rank.write(tmp_path / "two.json", steps=2)
    with pytest.raises(InputError, match=r"holds 2 steps, but one\.json holds 1"):
        replay([one, two])


def test_ranks_that_call_collectives_in_different_orders_are_refused(tmp_path):
    paths = []
    for number, groups in enumerate(("ab", "ba")):
        rank = Machine(number)
        for group in groups:
            rank.reduce(10.0, group, ranks=2)
        paths.append(rank.write(tmp_path / f"{number}.json"))
    with pytest.raises(InputError, match=r"traces: rank 0 waits forever at 'nccl.*; give traces"):
        replay(paths)


def test_ranks_are_stages_whose_collectives_name_all_that_meet(tmp_path):
    ranks = []
    for number in range(2):
        rank = Machine(number)
        rank.reduce(10.0 + number, ranks=2)
        ranks.append(read(rank.write(tmp_path / f"{number}.json", world=2)))
    written = program(ranks)
    assert written.mesh == {"pp": 2}
    (first,), (second,) = (stage.calls for stage in written.stages)
    assert first == second
    assert (first.stages, us(first.latency), first.loads) == ((0, 1), close(10.0), ())


def test_a_compressed_trace_is_the_same_trace(path):
    packed = path.with_suffix(".json.gz")
    packed.write_bytes(gzip.compress(overlapped(path).read_bytes()))
    assert replay([packed]).replayed == replay([path]).replayed


def test_a_network_that_carries_nothing_is_noted(path):
    command = ["replay", str(device_bound(path)), "--topology", "dgx-h100-ndr", "--gpus", "64"]
    assert "note: the trace has no collective" in CliRunner().invoke(main, command).stdout
    command[1] = str(overlapped(path))
    assert "no collective" not in CliRunner().invoke(main, command).stdout


def test_a_step_that_lasts_no_time_is_refused(path):
    device_bound(path)
    trace = json.loads(path.read_text())
    for event in trace["traceEvents"]:
        if event["name"].startswith("ProfilerStep"):
            event["dur"] = 0
    path.write_text(json.dumps(trace))
    with pytest.raises(InputError, match="lasts no time"):
        replay([path])


def test_a_call_without_arguments_launches_nothing(path):
    device_bound(path)
    trace = json.loads(path.read_text())
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaGetDevice", "ts": 1001, "dur": 1}
    trace["traceEvents"].append({**call, "pid": 0, "tid": 1, "args": None})
    path.write_text(json.dumps(trace))
    assert us(replay([path]).replayed.step_time) > 0


def test_a_trace_without_work_is_refused(path):
    path.write_text('{"traceEvents": []}')
    with pytest.raises(InputError, match="holds neither kernels nor operators"):
        replay([path])


def test_an_execution_trace_is_for_another_command(path):
    path.write_text('{"schema": "1.1.1", "nodes": []}')
    with pytest.raises(InputError, match=r"has no times; play it on a cluster: sim run"):
        replay([path])


def test_a_collective_without_its_size_cannot_move(path):
    rank = Machine()
    rank.launch(100.0, "ncclKernel_AllReduce_RING_LL_Sum_float", 20)
    other = machine(topologies.load("dgx-a100-hdr"), None, (), "x")
    with pytest.raises(InputError, match="has no size in the trace"):
        replay([rank.write(path)], Changes(machine=other))


def test_readings_are_those_that_calibrate_imports(path, tmp_path):
    overlapped(path)
    runner, files = CliRunner(), [tmp_path / "replayed.csv", tmp_path / "imported.csv"]
    for command in (
        ["replay", str(path), "--readings"],
        ["calibrate", "import", str(path), "--out"],
    ):
        result = runner.invoke(main, [*command, str(files[command[0] != "replay"])])
        assert result.exit_code == 0, result.output
    replayed, imported = (file.read_text() for file in files)
    assert replayed == imported
    assert "all_reduce" in replayed


@pytest.mark.parametrize(
    ("missing", "said"), [("Group size", "group size"), ("dtype", "known dtype")]
)
def test_a_collective_whose_group_or_type_is_unknown_stays_where_it_was(path, missing, said):
    rank = Machine()
    rank.reduce(100.0)
    del rank.events[-1]["args"][missing]
    other = machine(topologies.load("dgx-a100-hdr"), None, (), "x")
    assert us(replay([rank.write(path)]).measured) > 100.0
    with pytest.raises(InputError, match=f"RING_LL has no {said} in the trace; record the trace"):
        replay([path], Changes(machine=other))


def test_a_message_in_a_group_of_more_than_two_stays_where_it_was(path):
    rank = Machine()
    rank.reduce(100.0)
    rank.events[-1]["args"] |= {"Collective name": "send", "Process Group Ranks": str([*range(8)])}
    other = machine(topologies.load("dgx-a100-hdr"), None, (), "x")
    with pytest.raises(InputError, match="has no peer in the trace"):
        replay([rank.write(path)], Changes(machine=other))


@pytest.mark.parametrize("duration", [None, -3.0])
def test_a_kernel_of_no_known_duration_is_refused_by_its_name(path, duration):
    rank = Machine()
    rank.reduce(100.0)
    del rank.events[-1]["dur"]
    rank.events[-1] |= {} if duration is None else {"dur": duration}
    with pytest.raises(InputError, match=r"event 1: .*nccl.* is a kernel of unknown duration"):
        replay([rank.write(path)])
