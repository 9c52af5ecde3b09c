"""Ranks of our own: answers come back, a rank that dies takes the others with it."""

import os
import signal
import time

import pytest

from sim.errors import InputError

pytest.importorskip("torch")

from sim.calibration import ranks


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


def test_one_rank_needs_no_process() -> None:
    assert ranks.run(lambda rank, word: (rank, word, os.getpid()), 1, "a") == (0, "a", os.getpid())


def test_torchrun_with_another_number_of_ranks_is_refused(monkeypatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(InputError, match="torchrun started 4 ranks, the scenario has 2"):
        ranks.run(total, 2, 1.0)
