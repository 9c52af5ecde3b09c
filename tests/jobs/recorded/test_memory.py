"""Memory of recordings written by hand: at the fullest moment, over the step, and where it ends."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import sim
from sim.interface.cli.main import main
from sim.jobs.recorded.file import read, write
from sim.jobs.recorded.memory import BESIDE, Memory
from sim.jobs.recorded.recording import PARTS, Allocation, Event, Group, Recording
from sim.jobs.recorded.setup import RecordedScenario
from tests.jobs.recorded.test_play import LAUNCH, recorded

GIB = 1 << 30
WEIGHTS, KEPT, MOMENT = (PARTS.index(name) for name in ("parameters", "activations", "temporary"))
# A hole of 39 GiB, of which a piece at the beginning is in use, and then 45 GiB: in a segment of
# their own, or in the hole and 6 GiB behind it.
SPLIT = (
    Allocation(-1, 1, 3 * GIB, 0, 0, WEIGHTS),
    Allocation(0, 2, 40 * GIB, 0, 1, MOMENT),
    Allocation(1, 2, 0, 0, -1, 0),
    Allocation(1, 3, GIB, 0, 1, KEPT),
    Allocation(2, 4, 45 * GIB, 0, 2, KEPT),
    Allocation(3, 4, 0, 0, -1, 0),
)


def script(*memory: Allocation, allocator: str = "") -> Recording:
    lines = ("train.py:3", "train.py:7", "train.py:9")
    return recorded(*[LAUNCH] * 4, memory=memory, allocator=allocator, lines=lines)


def run(own: Recording, **settings: object) -> sim.Result:
    scenario = RecordedScenario(record=(own,), topology="dgx-h100-ndr")
    return sim.run(sim.load(scenario, settings))


def test_the_fullest_moment_is_told_by_part_and_by_line() -> None:
    peak = Memory(script(*SPLIT)).peak()
    assert (peak.allocated, peak.reserved, peak.event) == (49 * GIB, 88 * GIB, 2)
    assert peak.parts == {"activations": 46 * GIB, "parameters": 3 * GIB}
    assert peak.lines == {"train.py:9": 45 * GIB, "train.py:3": 3 * GIB, "train.py:7": GIB}


def test_what_takes_no_bytes_at_the_peak_is_not_its_line() -> None:
    taken = Allocation(0, 1, 2 * GIB, 0, 0, KEPT), Allocation(1, 2, 6 * GIB, 0, 1, KEPT)
    emptied, given = Allocation(2, 0, 0, 0, -1, 0), Allocation(3, 2, 0, 0, -1, 0)
    peak = Memory(script(*taken, emptied, given)).peak()
    assert (peak.allocated, peak.line, peak.event) == (8 * GIB, "train.py:7", 1)


def test_a_script_that_does_not_fit_is_told_where_and_what_would_help() -> None:
    result = run(script(*SPLIT))
    assert not result.fits
    assert list(result.remedies) == ["PYTORCH_ALLOC_CONF = expandable_segments:True"]
    (said, *lines) = result.warnings
    assert "out of memory at train.py:9: it asks for 45.0 GiB, but 4.00 GiB are allocated" in said
    assert lines[0] == "45.0 GiB of the peak come from train.py:9"
    assert "does not fit" in str(result)
    assert "with PYTORCH_ALLOC_CONF = expandable_segments:True, it fits" in str(result)
    larger = run(script(*SPLIT), **{"device.memory": "80 GiB"})
    assert list(larger.remedies) == ["PYTORCH_ALLOC_CONF = expandable_segments:True"]
    hopeless = run(script(Allocation(0, 1, 99 * GIB, 0, 0, KEPT)))
    assert "the script has to take less" in str(hopeless)


@pytest.mark.parametrize("where", ["recording", "setting"])
def test_settings_of_the_allocator_come_from_the_script_or_from_a_setting(where: str) -> None:
    growing = "expandable_segments:True"
    if where == "recording":
        result = run(script(*SPLIT, allocator=growing))
    else:
        result = run(script(*SPLIT), allocator=growing)
    assert result.fits
    assert result.memory_per_gpu["total"] == pytest.approx(49 * GIB, abs=40 << 20)
    assert not run(script(*SPLIT, allocator=growing), allocator="").fits


def test_what_is_cached_is_given_back_before_memory_runs_out() -> None:
    rows = (Allocation(0, 1, 50 * GIB, 0, 0, KEPT), Allocation(1, 1, 0, 0, -1, 0))
    result = run(script(*rows, Allocation(2, 2, 60 * GIB, 1, 0, KEPT)))
    assert result.fits
    assert any("gives cached memory back to the GPU once" in said for said in result.warnings)
    emptied = Allocation(2, 0, 0, 0, -1, 0)
    result = run(script(*rows, emptied, Allocation(2, 2, 60 * GIB, 1, 0, KEPT)))
    assert result.fits
    assert not result.warnings


RECORD, SYNC = Event(kind="record", mark=5), Event(kind="sync")


@pytest.mark.parametrize(
    ("events", "blocks"),
    [
        ((LAUNCH, LAUNCH, LAUNCH), 2),
        ((LAUNCH, LAUNCH, SYNC), 1),
        ((LAUNCH, RECORD, replace(SYNC, mark=5)), 1),
        ((RECORD, LAUNCH, replace(SYNC, mark=5)), 2),
        ((LAUNCH, LAUNCH, replace(SYNC, stream=1)), 2),
        ((replace(LAUNCH, stream=1), LAUNCH, LAUNCH), 2),
        ((replace(LAUNCH, stream=1), replace(LAUNCH, stream=1), LAUNCH), 1),
    ],
)
def test_a_block_of_two_streams_is_free_once_both_are_done_with_it(
    events: tuple[Event, ...], blocks: int
) -> None:
    """Made on stream 1, used on stream 0, given back behind the second event; one like it is wanted
    behind the third one, while the host is far ahead of products of 4,096."""
    rows = (
        Allocation(0, 1, GIB, 1, 0, MOMENT),
        Allocation(1, 1, -1, 0, -1, 0),
        Allocation(2, 1, 0, 0, -1, 0),
        Allocation(3, 2, GIB, 1, 0, MOMENT),
    )
    own = recorded(*events, LAUNCH, memory=rows)
    assert run(own).memory_per_gpu["total"] == blocks * GIB
    (curve,) = run(own).memory_curves
    assert curve.peak == blocks * GIB
    at_once = replace(own, memory=tuple(row for row in rows if row.bytes >= 0))
    assert run(at_once).memory_per_gpu["total"] == GIB
    by_its_own = replace(own, memory=(rows[0], replace(rows[1], stream=1), *rows[2:]))
    assert run(by_its_own).memory_per_gpu["total"] == GIB


def test_collectives_of_a_rank_alone_do_not_hold_up_the_host() -> None:
    """They are not issued, and so the device is as far behind as without them."""
    alone = [Event(kind="collective", name="all_reduce", bytes=8, group=0)] * 200
    rows = (
        Allocation(0, 1, GIB, 1, 0, MOMENT),
        Allocation(1, 1, -1, 0, -1, 0),
        Allocation(202, 1, 0, 0, -1, 0),
        Allocation(203, 2, GIB, 1, 0, MOMENT),
    )
    events, sizes = (LAUNCH, LAUNCH, *alone, LAUNCH, LAUNCH), ((), ((1, 16),))
    for axes, blocks in zip(sizes, (2, 1), strict=True):
        own = recorded(*events, groups=(Group(first=0, axes=axes),), memory=rows)
        assert run(own).memory_per_gpu["total"] == blocks * GIB


def test_a_full_device_is_waited_for() -> None:
    rows = (
        Allocation(0, 1, 50 * GIB, 1, 0, MOMENT),
        Allocation(1, 1, -1, 0, -1, 0),
        Allocation(2, 1, 0, 0, -1, 0),
        Allocation(3, 2, 50 * GIB, 1, 0, MOMENT),
    )
    result = run(script(*rows))
    assert result.fits
    assert any("gives cached memory back to the GPU once" in said for said in result.warnings)


def test_the_curve_rises_to_what_is_reserved(tmp_path: Path) -> None:
    result = run(script(*SPLIT), allocator="expandable_segments:True")
    (curve,) = result.memory_curves
    assert curve.peak == curve.total.max() == result.memory_per_gpu["total"]
    own = dict(zip(curve.parts, curve.bytes.T, strict=True))
    assert set(own["parameters"]) == {3.0 * GIB}
    assert np.all(curve.bytes >= 0)
    assert curve.times[-1] == pytest.approx(result.step_time)
    assert curve.bytes[-1].sum() == curve.total[-1]
    assert own[BESIDE][-1] == pytest.approx(45 * GIB, abs=40 << 20)
    write([script(*SPLIT)], tmp_path / "record.json")
    assert read(tmp_path / "record.json") == (script(*SPLIT),)
    command = ["run", str(tmp_path / "record.json"), "--topology", "dgx-h100-ndr"]
    answer = CliRunner().invoke(main, [*command, "--memory", str(tmp_path / "memory.csv")])
    assert answer.exit_code == 3  # written, though it does not fit
    assert BESIDE in (tmp_path / "memory.csv").read_text().splitlines()[0]


def test_a_block_is_drawn_while_the_kernels_between_its_ends_run() -> None:
    """Kernels of a pass without collectives are a single computation."""
    rows = (Allocation(1, 1, GIB, 0, 0, MOMENT), Allocation(3, 1, 0, 0, -1, 0))
    result = run(recorded(*[LAUNCH] * 8, memory=rows))
    (curve,) = result.memory_curves
    held = curve.bytes[:, curve.parts.index(PARTS[MOMENT])]
    *_, (begin, end) = ((s.start, s.end) for s in result.timeline.spans)
    times = [begin + share * (end - begin) for share in (1 / 8, 3 / 8)]
    assert {*curve.times[held == GIB].round(9)} == {*np.round(times, 9)}
    assert held[-1] == held[0] == 0.0
    assert result.memory_per_gpu["total"] == curve.peak == GIB


@pytest.mark.parametrize("given", ["expandable_segments:maybe", "splits:3", "backend:mine"])
def test_settings_that_torch_does_not_know_are_refused_in_one_line(
    tmp_path: Path, given: str
) -> None:
    write([script(*SPLIT)], tmp_path / "record.json")
    command = ["run", str(tmp_path / "record.json"), "--topology", "dgx-h100-ndr"]
    answer = CliRunner().invoke(main, [*command, "--set", f"allocator={given}"])
    assert answer.exit_code == 2
    (line,) = answer.stderr.splitlines()
    assert "allocator" in line
