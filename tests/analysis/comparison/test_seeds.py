"""The order of methods with its evidence: seeds that all share, tasks that all learn."""

import pytest
from click.testing import CliRunner

import sim
from sim.config.errors import InputError
from sim.interface.cli.main import main

FEW = {"sharing.steps": 30}


def test_a_job_against_itself_is_never_before_itself() -> None:
    """With the same seeds both draw the same, so that nothing is left of their difference."""
    both = sim.compare("ps-async", "ps-async", settings=FEW, seeds=3)
    assert "in 0 of 3 seeds, by 0 % (0 to 0)" in both.reason
    assert [len(case.runs) for case in both.cases] == [3, 3]


def test_a_slower_network_is_behind_in_every_seed_by_what_the_runs_say() -> None:
    slow = "ps-async: sharing.overhead=50 ms"
    found = sim.compare("ps-async", slow, settings=FEW, seeds=4, target=0.6)
    assert "ps-async is before ps-async: sharing.overhead=50 ms in 4 of 4 seeds" in found.reason


def test_what_learns_nothing_is_not_held_against_a_loss() -> None:
    with pytest.raises(InputError, match="ps-bsp: learns nothing"):
        sim.compare("ps-bsp", "ps-async", settings=FEW)
    refused = CliRunner().invoke(
        main, ["compare", "gpt2-one-gpu", ": plan.microbatch=2", "--seeds=2"]
    )
    assert "draws no random numbers" in refused.output


def test_losses_of_different_tasks_are_said_not_to_compare() -> None:
    other = "ps-async: sharing.learning.task=quadratic"
    notes = sim.compare("ps-async", other, settings=FEW).notes
    assert any("losses of different tasks do not compare" in note for note in notes)


def test_two_layouts_differ_by_an_interval_in_which_common_errors_cancel() -> None:
    both = sim.compare("megatron-39b", ": plan.microbatch=2")
    alone = both.results[0]
    assert "% longer (90 %)" in both.reason
    width = alone.step_time_high / alone.step_time_low
    low, high = (float(word) for word in both.reason.split("the other takes ")[1].split()[0:3:2])
    assert low < 100 * (both.seconds[0] / both.seconds[1] - 1) < high or low < 0 < high
    assert width > 1.0
