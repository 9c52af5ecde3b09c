"""What limits a recorded step: what is made faster is what it is faster by; lines and memory."""

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import sim
from sim.analysis.explanation.explain import Explanation
from sim.analysis.explanation.limits import Limit
from sim.interface.cli.main import main
from sim.jobs.recorded.file import write
from sim.jobs.recorded.recording import Allocation, Event, Operator, Recording
from tests.jobs.recorded.test_play import LAUNCH, PRODUCT, REDUCE, half, played, recorded

COPY = Operator(name="aten.clone", inputs=(half(1 << 26),), outputs=(half(1 << 26),), written=1e8)
COPIED = Event(kind="kernel", operator=1)
AWAITED = replace(LAUNCH, reads=(7,))


def scenario(*own: Recording, **settings: object) -> sim.RecordedScenario:
    job = sim.RecordedScenario(record=own, topology="dgx-h100-ndr")
    changed = sim.load(job, settings)
    assert isinstance(changed, sim.RecordedScenario)
    return changed


def explained(*events: Event, **more: object) -> Explanation:
    return sim.explain(scenario(recorded(*events, operators=(PRODUCT, COPY), **more)))


def limit(answer: Explanation, resource: str) -> Limit:
    (found,) = (one for one in answer.limits.limits if one.resource == resource)
    return found


def test_a_resource_at_no_cost_is_a_step_without_it() -> None:
    answer = explained(*[LAUNCH] * 6, *[COPIED] * 3, replace(REDUCE, blocking=True))
    products, copies, reduced, latency = (
        limit(answer, name)
        for name in (
            "matrix products",
            "memory-bound kernels",
            "bandwidth: data communication",
            "latency of messages",
        )
    )
    step = answer.limits.step_time
    assert step == answer.result.step_time
    spent = sum(one.seconds for one in answer.kernels)
    gains = [step - one.free for one in (products, copies)]
    # The host leads by the first product's launch. Where products take no time, the launches of all
    # six and of the first copy show (`Stack`: 17 us a launch, 10 us more for a product).
    launches = 6 * 27e-6 + 17e-6 - 27e-6
    assert spent - sum(gains) == pytest.approx(launches, rel=0.01)
    data = answer.result.breakdown["data communication"]
    assert 2 * step - reduced.free - latency.free == pytest.approx(data, rel=0.001)
    for one in answer.limits.limits:
        assert one.free <= one.halved <= step


def test_a_network_at_no_cost_takes_nothing_from_the_kernels_beside_it() -> None:
    work = [*[LAUNCH] * 12, AWAITED]
    answer = explained(REDUCE, *work)
    without = played(*work).step_time
    data = limit(answer, "bandwidth: data communication")
    assert answer.step_time > 1.05 * without
    assert data.free == pytest.approx(without, rel=0.01)
    assert data.free < data.halved < answer.step_time


def test_the_host_limits_small_kernels() -> None:
    small = Operator(name="aten.mm", inputs=(half(64, 64), half(64, 64)))
    answer = sim.explain(scenario(recorded(*[LAUNCH] * 100, operators=(small,))))
    first = answer.limits.limits[0]
    assert first.resource == "the host's launches"
    assert first.halved == pytest.approx(0.5 * answer.step_time, rel=0.05)


def test_kernels_are_of_the_line_that_they_differentiate() -> None:
    lines = ("train.py:3", "train.py:4")
    first, second = (replace(LAUNCH, line=number) for number in (0, 1))
    back = replace(first, phase="backward")
    answer = explained(first, second, replace(back, again=True), back, back, COPIED, lines=lines)
    each = answer.kernels[0].seconds / answer.kernels[0].count
    longest = answer.lines[0]
    assert longest.line == "train.py:3"
    assert longest.seconds == pytest.approx(
        {"forward": each, "again": each, "backward": 2 * each, "optimizer": 0.0}
    )
    assert {one.line for one in answer.lines} == {*lines, "no line of the script"}
    assert sum(one.total for one in answer.lines) == pytest.approx(
        sum(one.seconds for one in answer.kernels)
    )


def test_the_stage_that_computes_longest_is_looked_into() -> None:
    def stage(rank: int, kind: str, work: int) -> Recording:
        peer = 8 - rank
        message = Event(kind=kind, peer=peer, bytes=1e6, mark=1)  # type: ignore[arg-type]
        launches = [replace(LAUNCH, line=0)] * work
        own = (message, *launches) if kind == "recv" else (*launches, message)
        return replace(recorded(*own, lines=(f"stage{rank}.py:1",)), rank=rank, world=16)

    answer = sim.explain(scenario(stage(0, "send", 2), stage(8, "recv", 9)))
    assert {one.line for one in answer.lines} == {"stage8.py:1", "no line of the script"}
    assert answer.kernels[0].count == 9


GIB = 1 << 30


def memory(*rows: tuple[int, int, int, int]) -> tuple[Allocation, ...]:
    """Rows of event, block, GiB and line."""
    return tuple(Allocation(event, b, size * GIB, 0, line, 0) for event, b, size, line in rows)


def test_the_fullest_moment_is_told_by_the_lines_that_hold_it() -> None:
    lines = ("train.py:3", "train.py:9")
    rows = memory((-1, 1, 2, 0), (1, 2, 6, 1), (2, 2, 0, -1))
    answer = explained(*[LAUNCH] * 3, lines=lines, memory=rows)
    moment = answer.fullest
    assert moment is not None
    assert moment.when == "in a forward pass, at train.py:9"
    assert moment.lines == {"train.py:9": 6 * GIB, "train.py:3": 2 * GIB}
    assert moment.in_step == moment.allocated == 8 * GIB
    assert not any("memory is fullest" in warning for warning in answer.result.warnings)


def test_a_peak_before_the_step_is_said_to_be_none_of_the_step() -> None:
    """A model that is whole on the GPU before it is sharded."""
    rows = memory((-1, 1, 9, 0), (-1, 1, 0, -1), (-1, 2, 1, 0), (1, 3, 2, 0), (2, 3, 0, -1))
    answer = explained(*[LAUNCH] * 3, memory=rows)
    assert answer.fullest is not None
    assert answer.fullest.when == "before the recorded step, at train.py:3"
    assert (answer.fullest.allocated, answer.fullest.in_step) == (9 * GIB, 3 * GIB)
    said = "memory is fullest before the recorded step, at train.py:3: 9.00 GiB allocated; the step"
    assert answer.result.warnings[0] == f"{said} itself allocates at most 3.00 GiB"


def test_the_command_explains_a_recording(tmp_path: Path) -> None:
    path, picture = tmp_path / "record.json.gz", tmp_path / "limits.png"
    write([recorded(*[replace(LAUNCH, line=0)] * 99)], path)
    words = ["explain", str(path), "--set", "topology=dgx-h100-ndr", "--picture", str(picture)]
    shown = CliRunner().invoke(main, words)
    assert shown.exit_code == 0, shown.output
    assert picture.stat().st_size
    for said in ("Limited by matrix products", "Lines of the script", "Memory is fullest as"):
        assert said in shown.stdout
    assert "change" not in shown.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "--topology", "dgx-h100-ndr", "--actions", "a.csv"], "only a plan has an order"),
        (["replay"], "is a recording of sim capture, which has no times; play it on a cluster"),
    ],
)
def test_what_a_recording_does_not_have_is_refused_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write([recorded(LAUNCH)], Path("record.json.gz"))
    shown = CliRunner().invoke(main, [*words, "record.json.gz"])
    assert shown.exit_code == 2
    assert said in shown.stderr
    assert shown.stderr.count("\n") == 1
