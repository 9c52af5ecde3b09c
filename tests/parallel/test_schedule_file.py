"""Schedules written as PyTorch writes them: read back, and refused where they cannot run."""

import time
from pathlib import Path

import pytest

from sim import run
from sim.config.errors import InputError
from sim.engine.play import Engine
from sim.kind import described
from sim.parallel.schedule import schedule, table
from sim.parallel.schedule_file import from_text, to_text


@pytest.mark.parametrize("name", sorted(table()))
def test_text_round_trips(name):
    own = schedule(name, 3 * table()[name].stages, 12, table()[name].chunks or 2)
    again = from_text(to_text(own))
    assert (again.orders, again.pieces, again.ways) == (own.orders, own.pieces, own.ways)
    assert again.pairs == own.pairs


def test_pytorchs_csv_with_communication_reads_as_its_passes():
    text = "0F0,0SEND_F0,,0RECV_B0,0B0,0REDUCE_GRAD\n1RECV_F0,1F0,1B0,1SEND_B0,"
    assert to_text(from_text(text)) == "0F0,0B0\n1F0,1B0"


def test_passes_that_pytorch_overlaps_are_two_in_a_row_and_marked():
    own = from_text("0F0 (0F1;0B0)OVERLAP_F_B 0B1")
    assert [str(action) for action in own.orders[0]] == ["F0.0", "F1.0", "B0.0", "B1.0"]
    assert own.pairs == (frozenset({1}),)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "has no actions"),
        ("0F0 0X0", 'line 1: "0X0" is not an action'),
        (f"0F{'9' * 5000}", "is not an action"),
        ("0F 0B0", "'0F' names no microbatch"),
        ("0F0 0B0\n2F0 2B0", "does not give each stage equally many pieces"),
        ("0F0 0B0 1F0 1B0\n2F0 2B0", "does not give each stage equally many pieces"),
        ("0F0 0B0\n0F1 0B1", "each piece equally many stages"),
        ("0F0 1F0 0B0 1B0\n1F1 2F1 1B1 2B1\n2F0 0F1 2B0 0B1", "some of their pieces in common"),
    ],
)
def test_text_that_is_no_schedule_is_refused(text, complaint):
    with pytest.raises(InputError, match=complaint):
        from_text(text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("0F0 0B0\n1F0 1B0\n2F0 2B0", "has 3 lines for 2 stages"),
        ("0F0 0I0\n1F0 1B0", "stage 0 does not run W of microbatch 0 of piece 0 once"),
        ("0F0 0B0 0B0\n1F0 1B0", "stage 0 does not run . of microbatch 0 of piece 0 once"),
        ("0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1", "of microbatch 1 of piece 0 once"),
        ("0B0 0F0\n1F0 1B0", "stage 0 waits forever at 0B0"),
        ("0F0 0B0\n1B0 1F0", "stage 0 waits forever at 0B0 for 1I0"),
    ],
)
def test_a_file_that_cannot_run_is_refused(text, complaint, tmp_path: Path):
    path = tmp_path / "mine.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=complaint):
        schedule(str(path), 2, 1)


def test_a_file_that_is_not_there_is_refused():
    with pytest.raises(InputError, match="cannot be read"):
        schedule("nowhere.csv", 2, 1)


@pytest.mark.parametrize("engine", ["auto", "clock", "replay"])
def test_passes_that_wait_for_one_anothers_messages_are_refused_by_every_engine(
    engine: Engine, tmp_path: Path
) -> None:
    """An order may be possible though messages, taken in the order of their passes, are not."""
    path = tmp_path / "crossed.csv"
    path.write_text("0F0,0F1,0B0,0B1\n1F0,1F1,1B1,1B0\n")
    document = {
        "model": "gpt2-124m", "topology": "dgx-a100-hdr", "gpus": 2,
        "plan": {"pp": 2, "global_batch": 2, "schedule": str(path)},
    }  # fmt: skip
    with pytest.raises(InputError, match=r"stage 0 waits forever at 'B0\.0'"):
        run(described(document), engine=engine)


def test_parentheses_that_never_close_are_refused_at_once() -> None:
    begun = time.monotonic()
    with pytest.raises(InputError, match="is not an action"):
        from_text("(" * 80_000)
    assert time.monotonic() - begun < 2.0
