"""Rounds of collectives that are composed of smaller collectives."""

from collections.abc import Iterable, Sequence
from itertools import zip_longest

from sim.collectives.schedule import ChunkSend, CollectiveSchedule


def placed(
    part: CollectiveSchedule, members: Sequence[int], chunks: Sequence[Sequence[int]]
) -> list[list[ChunkSend]]:
    """The rounds of `part` in a larger schedule: members[i] is rank i, chunks[c] are chunk c."""
    return [
        [
            ChunkSend(members[send.src], members[send.dst], chunk, send.reduce)
            for send in round_
            for chunk in chunks[send.chunk]
        ]
        for round_ in part.rounds
    ]


def together(parts: Iterable[Sequence[Sequence[ChunkSend]]]) -> list[list[ChunkSend]]:
    """Rounds of groups that run side by side."""
    return [
        [send for round_ in rounds for send in round_]
        for rounds in zip_longest(*parts, fillvalue=())
    ]
