"""Recordings written by hand: their file, their program, their time; without torch."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import sim
from sim.config import limit
from sim.config.errors import InputError
from sim.config.units import quantity
from sim.interface.cli.main import main
from sim.interface.formats import perfetto
from sim.jobs.recorded.axes import every_axes, lattice, staged
from sim.jobs.recorded.file import _OF_OBJECT, _OF_VALUE, read, write
from sim.jobs.recorded.kernels import kernel_of
from sim.jobs.recorded.recording import (
    Allocation,
    Event,
    Group,
    Operator,
    Pass,
    Recording,
    Tensor,
)
from sim.jobs.recorded.setup import RecordedScenario
from sim.jobs.recorded.work import work_of
from sim.model.kernels import Gemm

WORLD = 16


def half(*shape: int) -> Tensor:
    return Tensor(dtype="bfloat16", width=2, shape=shape)


PRODUCT = Operator(name="aten.mm", inputs=(half(4096, 4096), half(4096, 4096)))
LAUNCH = Event(kind="kernel", operator=0)
REDUCE = Event(kind="collective", name="all_reduce", group=0, bytes=4e8, mark=7, phase="backward")


def recorded(*events: Event, groups: tuple[Group, ...] = (), **more: Any) -> Recording:
    return Recording(
        script="train.py",
        torch="2.13.0",
        world=WORLD,
        groups=groups or (Group(first=0, axes=((1, WORLD),)),),
        events=events,
        **{
            "operators": (PRODUCT,),
            "lines": ("train.py:3",),
            "memory": (Allocation(-1, 1, 3 << 30, 0, 0, 0),),
            **more,
        },
    )


def played(*events: Event, **settings: object) -> sim.Result:
    scenario = RecordedScenario(record=(recorded(*events),), topology="dgx-h100-ndr")
    return sim.run(sim.load(scenario, settings))


def test_a_recording_is_read_as_it_was_written(tmp_path: Path) -> None:
    own = recorded(LAUNCH, REDUCE, replace(LAUNCH, reads=(7,), again=True, line=0))
    for name in ("record.json", "record.json.gz"):
        write([own], tmp_path / name)
        assert read(tmp_path / name) == (own,)
        write([own, replace(own, rank=8)], tmp_path / name)
        assert read(tmp_path / name) == (own, replace(own, rank=8))


def test_kernels_in_a_row_take_as_long_as_they_take_one_by_one() -> None:
    one, ten = played(LAUNCH), played(*[LAUNCH] * 10)
    launch = 2e-3 + 27e-6  # the host before a step and for its first product, pytorch-eager.toml
    assert ten.step_time - launch == pytest.approx(10 * (one.step_time - launch), rel=1e-9)
    assert kernel_of(PRODUCT).flops == 2 * 4096**3


def test_a_collective_is_hidden_until_its_result_is_read() -> None:
    alone = played(LAUNCH, replace(REDUCE, blocking=True)).step_time - played(LAUNCH).step_time
    work = [LAUNCH] * 12
    hidden = played(REDUCE, *work, replace(LAUNCH, reads=(7,)))
    waited = played(REDUCE, replace(LAUNCH, reads=(7,)), *work)
    without = played(*work, LAUNCH).step_time
    assert waited.step_time == pytest.approx(alone + without, rel=0.1)
    assert without < hidden.step_time  # what it takes from kernels beside it
    assert hidden.step_time < 0.9 * waited.step_time
    assert hidden.breakdown["data communication"] < 0.5 * alone


def test_the_host_waits_for_a_collective_whose_result_it_reads() -> None:
    """It has not launched anything behind it before, as it would have without."""
    reduce, sync = replace(REDUCE, blocking=True), Event(kind="sync")
    ahead = played(LAUNCH, reduce, LAUNCH, LAUNCH)
    waits = played(LAUNCH, reduce, sync, LAUNCH, LAUNCH)
    launch = 27e-6  # of a product
    assert waits.step_time - ahead.step_time == pytest.approx(launch, rel=1e-6)
    assert played(LAUNCH, reduce, sync, sync, LAUNCH, LAUNCH).step_time == waits.step_time
    assert sum(waits.breakdown.values()) == pytest.approx(waits.step_time)


def test_a_slower_network_and_device_take_longer() -> None:
    work = (LAUNCH, replace(REDUCE, blocking=True))
    usual = played(*work)
    assert played(*work, **{"network.bandwidth": "100 Gb/s"}).step_time > usual.step_time
    assert played(*work, **{"device.memory": "2 GiB"}).fits is False


def test_a_recorded_step_waits_for_its_samples_and_no_longer() -> None:
    record = (recorded(LAUNCH, replace(REDUCE, blocking=True), samples=4),)
    loader = {"read": "1 kB", "workers": 2}

    def step(**settings: object) -> sim.Result:
        scenario = RecordedScenario(record=record, topology="dgx-h100-ndr")
        return sim.run(sim.load(scenario, {"storage.latency": "0 s", **settings}))

    usual, slow = step(), step(loader=loader | {"rate": 1})
    assert step(loader=loader).step_time == pytest.approx(usual.step_time, rel=1e-9)
    assert slow.step_time == pytest.approx(4 / 2, rel=1e-9)
    assert slow.breakdown["data loading"] == pytest.approx(2 - usual.step_time, rel=1e-9)


def test_a_recording_that_knows_no_samples_has_no_loader() -> None:
    with pytest.raises(InputError, match="does not say how many samples"):
        played(LAUNCH, loader={"read": "1 kB"})


def test_events_put_streams_in_order() -> None:
    work, mark = [LAUNCH] * 20, Event(kind="record", mark=3)
    beside = [replace(LAUNCH, stream=1)] * 20
    quick = {"stack.launch_forward": "1 us", "stack.operator_forward": {}}
    free = played(*work, *beside, **quick).step_time
    after = played(*work, mark, Event(kind="wait", stream=1, mark=3), *beside, **quick).step_time
    host = 2e-3  # before a step, pytorch-eager.toml
    assert after - host == pytest.approx(2 * (free - host), rel=0.1)


def test_groups_are_axes_of_a_mesh() -> None:
    inner, outer = Group(first=0, axes=((1, 4),)), Group(first=0, axes=((4, 4),))
    axes = next(every_axes([recorded(LAUNCH, groups=(inner, outer))]))
    assert dict(axes.mesh) == {"axis1": 4, "dp": 4}
    assert axes.of == (("axis1",), ("dp",))
    assert lattice((0, 1, 8, 9)) == ((1, 2), (8, 2))
    with pytest.raises(InputError, match="strides 1, 3, 4, 16 do not divide one another"):
        next(every_axes([recorded(LAUNCH, groups=(Group(first=0, axes=((1, 3),)), inner))]))


FORWARD, BACKWARD, OPTIMIZER = (
    replace(LAUNCH, phase=phase) for phase in ("forward", "backward", "optimizer")
)
ACCUMULATED = (*[FORWARD, BACKWARD] * 2, BACKWARD, OPTIMIZER)


def passes(result: sim.Result, stream: str = "compute") -> list[tuple[str, int]]:
    """Kinds and microbatches of what a stream computes behind the opening, equal ones once."""
    spans = [span for span in result.timeline.spans if span.stream == stream and span.start]
    found = [(span.args["phase"], span.args["microbatch"]) for span in spans]
    return [own for n, own in enumerate(found) if not n or own != found[n - 1]]


def test_passes_are_told_by_their_phases() -> None:
    """Each forward pass behind a backward pass is that of the next microbatch."""
    result = played(*ACCUMULATED)
    assert passes(result) == [("F", 0), ("B", 0), ("F", 1), ("B", 1), ("optimizer", -1)]
    whole = played(*[LAUNCH] * 5, OPTIMIZER)  # cut into passes a step takes as long
    assert result.step_time == pytest.approx(whole.step_time)
    assert result.breakdown["optimizer"] == pytest.approx(whole.breakdown["optimizer"])


def test_passes_of_a_schedule_are_those_that_were_recorded() -> None:
    """A pipeline's own: two pieces, with input and weight gradients apart."""
    order = [("F", 0, 1), ("F", 0, 3), ("I", 0, 3), ("W", 0, 3), ("F", 1, 1)]
    own = recorded(
        *(replace(LAUNCH, within=n) for n in range(len(order))),
        LAUNCH,
        passes=tuple(Pass(kind=k, microbatch=m, piece=p) for k, m, p in order),  # type: ignore[arg-type]
    )
    result = sim.run(RecordedScenario(record=(own,), topology="dgx-h100-ndr"))
    assert passes(result) == [("F", 0), ("I", 0), ("W", 0), ("F", 1), ("forward", -1)]
    chunks = [span.args["chunk"] for span in result.timeline.spans if span.stream == "compute"]
    assert chunks == [0, 0, 1, 1, 1, 0, 0]  # of the opening, and of what is within no pass, 0
    assert result.timeline.roles[0].pieces == (1, 3)
    named = [own["name"] for own in perfetto.events(result.timeline) if "PP:" in own["name"]]
    assert named == ["PP:1F0", "PP:3F0", "PP:3I0", "PP:3W0", "PP:1F1"]


def test_numbers_of_microbatches_are_unknown_where_ranks_send_messages_by_hand() -> None:
    groups = (Group(first=0, axes=((1, 8),)),)
    ends: tuple[dict[str, Any], ...] = ({"kind": "send", "peer": 8}, {"kind": "recv", "peer": 0})
    own = tuple(
        recorded(
            LAUNCH, LAUNCH, Event(bytes=1e6, mark=1, **end), BACKWARD, rank=8 * n, groups=groups
        )
        for n, end in enumerate(ends)
    )
    result = sim.run(RecordedScenario(record=own, topology="dgx-h100-ndr"))
    assert {p for p in passes(result) if p[0] in "FB"} == {("F", -1), ("B", -1)}
    assert {"PP:0F", "PP:0B"} < {own["name"] for own in perfetto.events(result.timeline)}


def test_a_recording_of_the_first_version_has_no_passes_and_is_played(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write([recorded(*ACCUMULATED)], path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 1}))
    old = sim.run(sim.load(path, {"topology": "dgx-h100-ndr"}))
    assert old.step_time == played(*ACCUMULATED).step_time
    assert ("B", 1) in passes(old)


def test_playing_needs_no_torch(tmp_path: Path) -> None:
    write([recorded(LAUNCH)], tmp_path / "record.json")
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from sim.interface.cli.main import main\n"
        f"main(['run', {str(tmp_path / 'record.json')!r}, '--topology', 'dgx-h100-ndr', '--json'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert json.loads(done.stdout)["ranks"] == WORLD, done.stderr


def test_a_recording_is_loaded_by_the_name_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write([recorded(LAUNCH)], path)
    job = sim.load(path, {"topology": "dgx-h100-ndr", "stack": "pytorch-eager"})
    same = RecordedScenario(record=str(path), topology="dgx-h100-ndr", name=job.name)
    assert job == same
    with pytest.raises(InputError, match="no topology is given; name one"):
        sim.load(path)
    refused = CliRunner().invoke(main, ["run", str(path)])
    assert refused.exit_code == 2
    assert "no topology is given" in refused.output


def test_a_stored_answer_is_no_recording(tmp_path: Path) -> None:
    path = tmp_path / "answer.json"
    path.write_text('{"schema": 1, "scenario": "local-sgd", "time": 3.0}')
    with pytest.raises(InputError, match=r"is a stored answer .*; `sim compare` reads answers"):
        sim.load(path)


@pytest.mark.parametrize("output", ["--trace", "--report"])
def test_outputs_of_a_run_are_written(tmp_path: Path, output: str) -> None:
    write([recorded(LAUNCH, REDUCE)], tmp_path / "record.json")
    out = tmp_path / {"--trace": "trace.json", "--report": "page.txt"}[output]
    command = ["run", str(tmp_path / "record.json"), "--topology", "dgx-h100-ndr", output, str(out)]
    assert CliRunner().invoke(main, command).exit_code == 0
    assert out.stat().st_size > 100


FLAT = {"dtype": "bfloat16", "width": 2.0, "shape": []}
HUGE = {**FLAT, "shape": [1 << 62]}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 9}, "version 9 is not known"),
        (
            {"events": [{"kind": "kernel", "operator": 5}]},
            "event 0 has operator 5, but there are 1",
        ),
        ({"events": [{"kind": "kernel"}]}, "event 0 has operator -1"),
        ({"events": [{"kind": "dance"}]}, "kind"),
        (
            {"events": [{"kind": "kernel", "operator": 0, "within": 0}]},
            "event 0 has within 0, but there are 0",
        ),
        ({"passes": [{"kind": "X", "microbatch": 0}]}, "kind"),
        ({"memory": [[1, 2]]}, "row 0 of memory"),
        ({"memory": [[0, 1, 1, 0, 99, 0]]}, "row 0 of memory"),
        ({"groups": [{"first": 0, "axes": [[1, 999]]}]}, "ends at rank 998"),
        ({"events": []}, "it holds no kernel"),
        ({"stages": []}, "is no recording"),
        ({"stages": [{}, {}]}, "stage 0: is no recording"),
        ({"extra": 1}, "unknown key 'extra'"),
        ({"lines": ["train.py:3\x1b[2J"]}, r"has control characters in 'train.py:3\x1b[2J'"),
        ({"script": "a\x07b.py"}, r"has control characters in 'a\x07b.py'"),
        ({"operators": [{"name": "aten.mm", "inputs": [FLAT, FLAT]}]}, "not have the operands"),
        ({"operators": [{"name": "aten._foreach_mul", "flags": {"lists": []}}]}, "not have the"),
        ({"operators": [{"name": "aten.mul", "inputs": [HUGE]}]}, "a tensor beyond any memory"),
        ({"notes": ["\x9b31m"]}, r"has control characters in '\x9b31m'"),
    ],
)
def test_a_file_that_is_no_recording_is_refused_in_one_line(
    tmp_path: Path, change: dict[str, object], said: str
) -> None:
    path = tmp_path / "record.json"
    write([recorded(LAUNCH)], path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    answer = CliRunner().invoke(main, ["run", str(path), "--topology", "dgx-h100-ndr"])
    assert answer.exit_code == 2
    assert len(answer.stderr.splitlines()) == 1
    assert said in answer.stderr


@pytest.mark.parametrize(
    ("content", "arguments", "said"),
    [
        (b"{", ["--topology", "dgx-h100-ndr"], "is not JSON"),
        (b"[1]", ["--topology", "dgx-h100-ndr"], "is no recording"),
        (b"\x1f\x8b\x99xx", ["--topology", "dgx-h100-ndr"], "not a whole gzip file"),
        (b"{}", [], "no topology"),
    ],
)
def test_other_files_and_commands_are_refused(
    tmp_path: Path, content: bytes, arguments: list[str], said: str
) -> None:
    path = tmp_path / "record.json.gz"
    path.write_bytes(content)
    answer = CliRunner().invoke(main, ["run", str(path), *arguments])
    assert answer.exit_code == 2
    assert said in answer.stderr


def test_a_recording_is_refused_where_a_plan_is_needed(tmp_path: Path) -> None:
    write([recorded(LAUNCH)], tmp_path / "record.json")
    answer = CliRunner().invoke(main, ["workers", str(tmp_path / "record.json")])
    assert answer.exit_code == 2


def test_what_limits_a_recording_is_told_where_it_runs(tmp_path: Path) -> None:
    write([recorded(LAUNCH)], tmp_path / "record.json")
    there = ["--topology", "dgx-h100-ndr", "--stack", "pytorch-eager"]
    answer = CliRunner().invoke(main, ["explain", str(tmp_path / "record.json"), *there])
    assert "the host's launches" in answer.stdout


def test_a_recording_has_a_cost_and_is_swept_and_compared(tmp_path: Path) -> None:
    """Sixteen ranks look up 4 sequences of 512 tokens each."""
    table = Tensor(dtype="bfloat16", width=2, shape=(32000, 4096))
    numbers = Tensor(dtype="int64", width=8, shape=(4, 512))
    look = Operator(name="aten.embedding", inputs=(table, numbers), outputs=(half(4, 512, 4096),))
    events = (replace(LAUNCH, operator=1), *[LAUNCH] * 4)
    own = recorded(*events, operators=(PRODUCT, look), parameters=10**9)
    path = tmp_path / "record.json.gz"
    write([own], path)
    always = {"topology": "dgx-h100-ndr"}
    result = sim.run(path, always)
    tokens = WORLD * 4 * 512
    assert result.tokens_per_second * result.step_time == pytest.approx(tokens)
    cost = sim.cost(path, tokens=1e9, price="2 USD/h", settings=always)
    assert cost.seconds == pytest.approx(1e9 / tokens * result.step_time)
    assert cost.dollars == pytest.approx(cost.seconds / 3600 * WORLD * 2)
    month = sim.goodput(path, days=1.0, settings=always)
    assert month.checkpoint_bytes == 12e9
    rows = sim.sweep(path, {"network.bandwidth": ["100 Gb/s", "400 Gb/s"]}, settings=always, jobs=1)
    assert rows.valid == 2
    assert rows.frame["step_time"].iloc[1] == result.step_time
    both = sim.compare(path, f"{path}: network.bandwidth=100 Gb/s", settings=always)
    assert both.to_dict()["cases"][0]["step_time"] == result.step_time
    write([recorded(LAUNCH)], path)
    with pytest.raises(InputError, match="looks up no tokens"):
        sim.cost(path, tokens=1e9, settings=always)


def test_a_recording_is_described(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write([recorded(LAUNCH, LAUNCH, replace(LAUNCH, again=True), REDUCE)], path)
    shown = CliRunner().invoke(main, ["show", str(path)]).stdout
    assert "rank 0 of" in shown
    assert "all-reduce" in shown
    (operators,) = (line for line in shown.splitlines() if "operators" in line)
    assert operators.split()[1] == "3"
    refused = CliRunner().invoke(main, ["show", str(path), "--gpus", "8"])
    assert refused.exit_code == 2


def test_a_group_of_one_rank_many_times_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write([recorded(LAUNCH, REDUCE)], path)
    document = json.loads(path.read_text())
    document["groups"][0]["axes"] = [[0, 64]]
    path.write_text(json.dumps(document))
    answer = CliRunner().invoke(main, ["run", str(path), "--topology", "dgx-h100-ndr"])
    assert answer.exit_code == 2
    assert "record it again" in answer.stderr


def test_arguments_of_several_lines_come_back(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write([replace(recorded(LAUNCH), arguments=("--text", "one\n\ttwo"))], path)
    assert read(path)[0].arguments == ("--text", "one\n\ttwo")


def tensor(*shape: int) -> Tensor:
    return Tensor(dtype="float32", width=4, shape=shape)


def test_a_depthwise_convolution_moves_its_images_and_counts_its_flops() -> None:
    image, result = tensor(8, 64, 28, 28), tensor(8, 64, 14, 14)
    operator = Operator(
        name="aten.convolution", inputs=(image, tensor(64, 1, 3, 3)), outputs=(result,)
    )
    kernel = kernel_of(operator)
    assert kernel.family == "stream"
    assert kernel.bytes == image.bytes + result.bytes + 4 * 64 * 9
    done = work_of(recorded(LAUNCH, operators=(operator,)))
    assert done.executed_flops == done.model_flops == 2 * 8 * 64 * 14 * 14 * 9


def test_a_convolution_is_no_reverse_of_another_because_it_is_padded_much() -> None:
    """In a causal one, padded by 3 on both sides, 128 outputs are the sums of 64 x 4 products."""
    operator = Operator(
        name="aten.convolution",
        inputs=(tensor(8, 64, 100), tensor(128, 64, 4)),
        outputs=(tensor(8, 128, 103),),
        flags={"transposed": False},
    )
    assert kernel_of(operator).flops == 2 * 8 * 103 * 128 * 64 * 4  # type: ignore[union-attr]


def test_a_batch_norm_reads_its_image_twice_a_channel_a_cta() -> None:
    image = tensor(8, 64, 28, 28)
    for name, passes in (("native_batch_norm", 3.2), ("native_batch_norm_backward", 5.5)):
        kernel = kernel_of(Operator(name=f"aten.{name}", inputs=(image, tensor(64))))
        assert (kernel.bytes, kernel.ctas) == (passes * image.bytes, 64)  # type: ignore[union-attr]


def test_a_convolution_in_tf32_runs_in_fp32_where_the_device_has_none() -> None:
    image, weight = tensor(8, 64, 28, 28), tensor(64, 64, 3, 3)
    operator = Operator(
        name="aten.convolution", inputs=(image, weight), outputs=(image,), flags={"tf32": True}
    )
    scenario = RecordedScenario(
        record=(replace(recorded(LAUNCH), operators=(operator,)),), topology="dgx-1-v100-16gb"
    )
    assert sim.run(sim.load(scenario)).inputs.precision == "fp32"


def test_both_gradients_of_a_convolution_multiply_as_much_as_its_forward_pass_each() -> None:
    """Where the image's stride is two and where the convolution is transposed, too."""
    image, result, weight = tensor(8, 64, 28, 28), tensor(8, 32, 14, 14), tensor(32, 64, 3, 3)
    forward = Operator(name="aten.convolution", inputs=(image, weight), outputs=(result,))
    back = Operator(
        name="aten.convolution_backward",
        inputs=(result, image, weight),
        flags={"output_mask": (True, True, False)},
    )
    transposed = Operator(name="aten.convolution", inputs=(result, weight), outputs=(image,))
    flops = 2 * 8 * 14 * 14 * 32 * 64 * 9
    found = [kernel_of(each) for each in (forward, back, transposed)]
    assert [kernel.flops for kernel in found if isinstance(kernel, Gemm)] == [
        flops,
        2 * flops,
        flops,
    ]


def test_a_recording_of_too_many_events_is_refused_before_it_is_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """66 million events, as they fit into the largest file, would take 38 min: here a limit of
    0.1 ms refuses four, as no JSON."""
    path = tmp_path / "record.json"
    path.write_text('{"script": "a", "events": [{},{},{},{}')
    monkeypatch.setattr(limit, "allowed", lambda: 1e-4)
    with pytest.raises(InputError) as refused:
        read(path)
    needed = quantity(str(refused.value).rpartition('--limit "')[2].rstrip('"'), "s")
    assert needed > 5 * _OF_OBJECT + 4 * _OF_VALUE
    assert ", and 0.0001 s are allowed; ask for less" in str(refused.value)
    assert "a recording of 5 entries and 4 values would take about" in str(refused.value)
    assert 66e6 * (_OF_OBJECT + _OF_VALUE) > 3 * limit.USUAL


def test_stages_of_recordings_take_time_in_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    """The axes of all stages are looked for once, not once a stage: 300 stages took 30 s."""
    count, looked = 40, []
    monkeypatch.setattr(sys.modules[__name__], "WORLD", count)

    class Watched(tuple[Group, ...]):
        def __iter__(self) -> Any:
            looked.append(self)
            return super().__iter__()

    sends = [(Event(kind="send", peer=rank + 1, bytes=1.0),) for rank in range(count - 1)]
    stages = [recorded(LAUNCH, *sent, rank=rank) for rank, sent in enumerate([*sends, ()])]
    for stage in stages:
        object.__setattr__(stage, "groups", Watched())
    assert [axes.stage(own.rank) for own, axes in staged(stages)] == list(range(count))
    assert len(looked) <= 3 * count


@pytest.mark.parametrize(("row", "passes"), [(8192, (2, 3)), (128256, (4, 4))])
def test_rows_that_shared_memory_cannot_hold_are_read_again(
    row: int, passes: tuple[int, int]
) -> None:
    """One reading and one writing, or three readings (SoftMax.cu); backward the gradient twice."""
    logits = Tensor(dtype="float32", width=4, shape=(16, row))
    ways = {"_log_softmax": (logits,), "_log_softmax_backward_data": (logits, logits)}
    for (name, inputs), often in zip(ways.items(), passes, strict=True):
        operator = Operator(
            name=f"aten.{name}", inputs=inputs, outputs=(logits,), written=logits.bytes
        )
        assert kernel_of(operator).bytes == often * 4 * 16 * row  # type: ignore[union-attr]
