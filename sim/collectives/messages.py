"""The third reading: messages with dependencies, for the clock to play one by one."""

from collections import defaultdict
from dataclasses import dataclass

from sim.collectives.schedule import CollectiveSchedule, Round


@dataclass(frozen=True, slots=True)
class Message:
    """`bytes` from `src` to `dst`, once the messages with the ids `after` have arrived."""

    id: int
    src: int
    dst: int
    bytes: float
    after: tuple[int, ...]


def messages(schedule: CollectiveSchedule, size: float, *, lockstep: bool = True) -> list[Message]:
    """One message for each round and pair of ranks, with all chunks between them.

    In lockstep a round starts when the round before it is over everywhere, as the closed forms
    assume. Otherwise a message waits only for those that its sender has sent or received so far, so
    it is never later: that is how collectives absorb ranks and links of unequal speed.

    >>> from sim.collectives.algorithms import ring
    >>> [(m.src, m.dst, m.after) for m in messages(ring.all_gather(3), 3.0, lockstep=False)][3:]
    [(0, 1, (0, 2)), (1, 2, (0, 1)), (2, 0, (1, 2))]
    """
    chunk = size / schedule.chunks
    sent: list[Message] = []
    before: tuple[int, ...] = ()
    recent: dict[int, list[int]] = defaultdict(list)  # by rank: its last sends and all since them
    for round_ in schedule.rounds:
        current = [
            Message(id_, src, dst, count * chunk, before if lockstep else tuple(recent[src]))
            for id_, ((src, dst), count) in enumerate(_pairs(round_).items(), start=len(sent))
        ]
        sent += current
        before = tuple(message.id for message in current)
        _remember(current, recent)
    return sent


def _remember(current: list[Message], recent: dict[int, list[int]]) -> None:
    """A send has waited for all earlier messages of its rank, so these need no longer be kept."""
    for src in {message.src for message in current}:
        recent[src] = []
    for message in current:
        recent[message.src].append(message.id)
        recent[message.dst].append(message.id)


def _pairs(round_: Round) -> dict[tuple[int, int], int]:
    counts: dict[tuple[int, int], int] = defaultdict(int)
    for send in round_:
        counts[send.src, send.dst] += 1
    return counts
