"""Ranks of our own: answers come back, a rank that dies takes the others with it."""

import os
import signal
import time
from multiprocessing import get_context
from pathlib import Path

import pytest

from sim.config.errors import InputError

pytest.importorskip("torch")

from sim.calibration.timing import ranks


def total(rank: int, each: float) -> float:
    import torch
    import torch.distributed as dist

    mine = torch.tensor([each * (rank + 1)])
    dist.all_reduce(mine)
    return float(mine)


def one_fails(rank: int) -> float:
    if rank == 1:
        raise RuntimeError("out of cheese\nredo from start")
    return total(rank, 1.0)


def one_is_killed(rank: int) -> float:
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return total(rank, 1.0)


def test_ranks_form_a_process_group() -> None:
    assert ranks.run(total, 2, 2.0, threads=1) == 6.0


@pytest.mark.parametrize(
    ("task", "said"),
    [(one_fails, "rank 1: RuntimeError: out of cheese"), (one_is_killed, "rank 1: died by signal")],
)
def test_a_rank_that_dies_ends_the_others_with_its_error(task, said) -> None:
    began = time.monotonic()
    with pytest.raises(InputError, match=said):
        ranks.run(task, 2, threads=1)
    assert time.monotonic() - began < 30, "the bar is 30 s; the others would wait ten minutes"


def sleeps(rank: int, folder: str) -> None:
    Path(folder, f"{rank}").write_text(str(os.getpid()))
    time.sleep(60)


def test_ranks_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    parent = get_context("spawn").Process(target=ranks.run, args=(sleeps, 2, str(tmp_path)))
    parent.start()
    while len(pids := [int(f.read_text() or 0) for f in tmp_path.iterdir()]) < 2 or not all(pids):
        time.sleep(0.05)
    parent.kill()
    deadline = time.monotonic() + 20
    while any(map(running, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def running(pid: int) -> bool:
    """Whether a process is more than a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_one_rank_needs_no_process() -> None:
    assert ranks.run(lambda rank, word: (rank, word, os.getpid()), 1, "a") == (0, "a", os.getpid())


def test_torchrun_with_another_number_of_ranks_is_refused(monkeypatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(InputError, match="torchrun started 4 ranks, the scenario has 2"):
        ranks.run(total, 2, 1.0)
