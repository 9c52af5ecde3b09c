"""Where can a recording be moved to?"""

import re
from dataclasses import replace
from functools import cache
from math import inf
from pathlib import Path

import pytest
from click.testing import CliRunner

import sim
from sim.analysis.explanation.moves import Moves
from sim.config.errors import InputError
from sim.config.readable import human_seconds
from sim.interface.cli.main import main
from sim.jobs.recorded.file import read, write
from sim.jobs.recorded.recording import Operator

RECORD = Path(__file__).parents[2] / "jobs/capturing/recordings/ddp-2.12.json.gz"

FEW = {"sharing.steps": 30}


@cache
def moves() -> Moves:
    return sim.moves(RECORD, {"topology": "dgx-h100-ndr"})


def test_moves_are_played_and_sorted_and_the_script_itself_is_among_them() -> None:
    answer = moves()
    rates = [move.rate for move in answer.moves if move.result.fits]
    assert rates == sorted(rates, reverse=True)
    assert answer.result.step_time in [move.result.step_time for move in answer.moves]
    assert len({move.moved for move in answer.moves}) == len(answer.moves)
    for move in answer.moves:
        assert (
            move.result.ranks != answer.result.ranks
            or "the batch" not in move.moved
            or (move.result.step_time == answer.result.step_time)
        )


def test_more_gpus_take_no_less_time_for_the_same_batch_each() -> None:
    answer = moves()
    same = [move.result for move in answer.moves if "the batch of the script" in move.moved]
    steps = [result.step_time for result in sorted(same, key=lambda result: result.ranks)]
    assert steps == sorted(steps)


def test_only_moves_of_a_global_batch_are_played() -> None:
    batch = int(moves().result.inputs.batch)
    answer = sim.moves(RECORD, {"topology": "dgx-h100-ndr"}, global_batch=2 * batch)
    assert {move.result.inputs.batch for move in answer.moves} == {2 * batch}
    with pytest.raises(InputError, match="no move"):
        sim.moves(RECORD, {"topology": "dgx-h100-ndr"}, global_batch=7 * batch)


def test_batches_that_shapes_do_not_tell_are_refused_with_the_reason(tmp_path: Path) -> None:
    (own,) = read(RECORD)
    write([replace(own, operators=tuple(map(_unlike, own.operators)))], tmp_path / "record.json.gz")
    answer = sim.moves(tmp_path / "record.json.gz", {"topology": "dgx-h100-ndr"})
    assert {round(move.result.inputs.batch) for move in answer.moves} == {0}
    assert {move.samples_per_second for move in answer.moves} == {None}
    named = [move.moved for move in answer.moves]
    known = moves().moves
    assert named == [move.moved for move in known if move.moved in named]
    ((moved, why),) = answer.refused
    assert moved == "64 GPUs, other batches"
    assert "shows its batch" in why


def _unlike(operator: Operator) -> Operator:
    """An operator that neither looks anything up nor copies it from the host."""
    known = any(word in operator.name for word in ("embedding", "_to_copy", "nll_loss"))
    return replace(operator, name="aten.mul", flags={}) if known else operator


def test_plan_takes_a_recording() -> None:
    answer = CliRunner().invoke(main, ["plan", str(RECORD), "dgx-h100-ndr", "--gpus", "64"])
    assert "64 GPUs" in answer.output
    missing = CliRunner().invoke(main, ["plan", "llama3-8b", "dgx-h100-ndr"])
    assert missing.exit_code == 2
    assert "--global-batch" in missing.stderr


@pytest.mark.long
def test_a_job_against_itself_is_never_before_itself() -> None:
    """With the same seeds both draw the same, so that nothing is left of their difference."""
    both = sim.compare("ps-async", "ps-async", settings=FEW, seeds=3)
    assert "in 0 of 3 seeds, by 0 % (0 to 0)" in both.reason
    assert [len(case.runs) for case in both.cases] == [3, 3]


@pytest.mark.long
def test_a_slower_network_is_behind_in_every_seed_by_what_the_runs_say() -> None:
    slow = "ps-async: sharing.overhead=50 ms"
    found = sim.compare("ps-async", slow, settings=FEW, seeds=4, target=0.6)
    assert "ps-async is before ps-async: sharing.overhead=50 ms in 4 of 4 seeds" in found.reason


def test_figures_of_several_seeds_are_medians_and_each_seed_is_kept() -> None:
    found = sim.compare("ps-async", ": sharing.mode=bsp", settings=FEW, seeds=3, target=0.5)
    assert "median (lowest to highest)" in found.table[0]
    for case, row, cells in zip(found.cases, found.records, found.table[1:], strict=True):
        times = [run.time_to(0.5) for run in case.runs]
        assert row["runs"]["time_to_target"] == times
        first, middle, last = sorted(times, key=lambda time: time or inf)
        assert row["time_to_target"] == middle
        ends = [human_seconds(time) if time else "never" for time in (middle, first, last)]
        shown = ends[0] if ends[1] == ends[2] else "{} ({} to {})".format(*ends)
        assert shown in cells
    best = min(found.records, key=lambda row: row["time_to_target"] or inf)
    assert found.best.name == best["name"]
    alone = sim.compare(*(case.result for case in found.cases))
    assert "runs" not in alone.records[0]
    assert alone.table[0][0] == ""


def test_other_models_or_devices_of_ways_are_noted() -> None:
    found = [sim.compare("ps-bsp", job, settings=FEW) for job in ("local-sgd", "ps-bsp")]
    unlike, alike = ([note for note in own.notes if "differ in more" in note] for own in found)
    assert not alike
    assert "ps-bsp vgg16 on 40 " in unlike[0]
    assert "local-sgd resnet50 on 256 " in unlike[0]


def test_what_learns_nothing_is_not_held_against_a_loss() -> None:
    with pytest.raises(InputError, match="ps-bsp: has no learning task"):
        sim.compare("ps-bsp", "ps-async", settings=FEW, target=1.0)
    both = sim.compare("ps-bsp", "ps-async", settings=FEW)  # by pace
    assert both.best.name == max(both.records, key=lambda row: row["samples_per_second"])["name"]
    told = [note for note in both.notes if "as some ways have no learning task: ps-bsp" in note]
    assert len(told) == 1
    assert "nothing is learnt" not in both.reason
    refused = CliRunner().invoke(
        main, ["compare", "gpt2-one-gpu", ": plan.microbatch=2", "--seeds=2"]
    )
    assert "draws no random numbers" in refused.output


def test_losses_of_different_tasks_are_said_not_to_compare() -> None:
    other = "ps-async: sharing.learning.task=quadratic"
    notes = sim.compare("ps-async", other, settings=FEW).notes
    assert any("losses of different tasks are not comparable" in note for note in notes)


def test_two_layouts_differ_by_an_interval_in_which_common_errors_cancel() -> None:
    both = sim.compare("megatron-39b", ": plan.microbatch=2")
    alone = both.results[0]
    assert "% probability its measured run is shorter" in both.reason
    width = alone.step_time_high / alone.step_time_low
    less, more = re.findall(r"([\d.]+) % (?:less|more)", both.reason.split("which takes ")[1])
    low, high = -float(less), float(more)
    assert low < 100 * (both.seconds[0] / both.seconds[1] - 1) < high or low < 0 < high
    assert width > 1.0
