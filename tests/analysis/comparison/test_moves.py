"""Where can a recording be moved to?"""

from pathlib import Path

import pytest
from click.testing import CliRunner

import sim
from sim.config.errors import InputError
from sim.interface.cli.main import main

RECORD = Path(__file__).parents[2] / "jobs/capturing/recordings/ddp-2.12.json.gz"


def test_moves_are_played_and_sorted_and_the_script_itself_is_among_them() -> None:
    answer = sim.moves(RECORD, {"topology": "dgx-h100-ndr"})
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
    answer = sim.moves(RECORD, {"topology": "dgx-h100-ndr"})
    same = [move.result for move in answer.moves if "the batch of the script" in move.moved]
    steps = [result.step_time for result in sorted(same, key=lambda result: result.ranks)]
    assert steps == sorted(steps)


def test_only_moves_of_a_global_batch_are_played() -> None:
    batch = int(sim.moves(RECORD, {"topology": "dgx-h100-ndr"}).result.inputs.batch)
    answer = sim.moves(RECORD, {"topology": "dgx-h100-ndr"}, global_batch=2 * batch)
    assert {move.result.inputs.batch for move in answer.moves} == {2 * batch}
    with pytest.raises(InputError, match="no move"):
        sim.moves(RECORD, {"topology": "dgx-h100-ndr"}, global_batch=7 * batch)


def test_plan_takes_a_recording() -> None:
    answer = CliRunner().invoke(main, ["plan", str(RECORD), "dgx-h100-ndr", "--gpus", "64"])
    assert "64 GPUs" in answer.output
    missing = CliRunner().invoke(main, ["plan", "llama3-8b", "dgx-h100-ndr"])
    assert missing.exit_code == 2
    assert "--global-batch" in missing.stderr
