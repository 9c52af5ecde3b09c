"""Ranks in processes of their own: they start as others talk to them; messages keep their order."""

import os
from typing import Any

import pytest

from sim.config.errors import InputError
from sim.jobs.capturing.exchange import Exchange, captured_together


def test_a_rank_starts_when_another_sends_to_it_and_hears_everything_in_order() -> None:
    def capture(rank: int, exchange: Exchange) -> Any:
        if rank == 3:
            exchange.send(5, "first")
            exchange.send(5, "second")
            return exchange.receive(5)
        heard = exchange.receive(3), exchange.receive(3)
        exchange.send(3, len(heard))
        return heard

    assert captured_together(capture, 3) == {3: 2, 5: ("first", "second")}


def _waits(rank: int, exchange: Exchange) -> Any:
    return exchange.receive(1 - rank)


def _dies(rank: int, exchange: Exchange) -> Any:
    os._exit(1)


def _fails(rank: int, exchange: Exchange) -> Any:
    exchange.meet(1)
    if rank:
        raise InputError("train.py:3", "cannot be recorded")
    return exchange.receive(1)


def _spreads(rank: int, exchange: Exchange) -> Any:
    exchange.meet(rank + 1)
    return exchange.receive(rank + 1)


@pytest.mark.parametrize(
    ("capture", "said"),
    [
        (_waits, "waits for a message that rank . never sends"),
        (_dies, "the process of rank 0 died"),
        (_fails, "train.py:3: cannot be recorded"),
        (_spreads, "more than 64 ranks"),
    ],
)
def test_ranks_that_cannot_be_captured_together_are_refused(capture: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        captured_together(capture, 0)
