"""Two ways to read a schedule: as bytes on every edge, and as messages for the clock."""

from collections import Counter, defaultdict
from typing import NamedTuple

import numpy as np

from sim.collectives.schedule import ClosedForm, CollectiveSchedule, Indices, Round
from sim.config.dataclass import dataclass

Edge = tuple[int, int, float]  # source, destination, bytes for each byte of the collective


@dataclass(frozen=True, slots=True, kw_only=True)
class Fluid(ClosedForm):
    """The closed form, counted from the rounds, and the bytes on every edge."""

    edges: tuple[Edge, ...]


def condense(schedule: CollectiveSchedule) -> Fluid:
    """Add up the bytes of the rounds.

    >>> from sim.collectives.algorithms import ring
    >>> condense(ring.all_gather(3)).edges
    ((0, 1, 0.6666666666666666), (1, 2, 0.6666666666666666), (2, 0, 0.6666666666666666))
    """
    chunk = 1.0 / schedule.chunks
    rounds = [Counter((send.src, send.dst) for send in round_) for round_ in schedule.rounds]
    pairs = Counter((send.src, send.dst) for round_ in schedule.rounds for send in round_)
    busiest = _busiest(pairs)
    return Fluid(
        rounds=len(rounds),
        edges=tuple((src, dst, count * chunk) for (src, dst), count in sorted(pairs.items())),
        bytes=busiest * chunk,
        fill=(sum(map(_busiest, rounds)) - busiest) * chunk,
    )


def _busiest(pairs: Counter[tuple[int, int]]) -> int:
    """The most chunks that one rank sends, or receives."""
    out: Counter[int] = Counter()
    into: Counter[int] = Counter()
    for (src, dst), count in pairs.items():
        out[src] += count
        into[dst] += count
    return max([*out.values(), *into.values()], default=0)


@dataclass(frozen=True, slots=True)
class Message:
    """`bytes` from `src` to `dst`, once the messages with the ids `after` have arrived."""

    id: int
    src: int
    dst: int
    bytes: float
    after: tuple[int, ...]


def messages(schedule: CollectiveSchedule, size: float, *, lockstep: bool = True) -> list[Message]:
    """A message for each round and pair of ranks, with all chunks between the two ranks.

    In lockstep a round starts when the round before it is over everywhere, as the closed forms
    assume. Otherwise a message waits only for messages that its sender has sent or received so far,
    so it never starts later than in lockstep. Unequal ranks and links then delay less.

    >>> from sim.collectives.algorithms import ring
    >>> [(m.src, m.dst, m.after) for m in messages(ring.all_gather(3), 3.0, lockstep=False)][3:]
    [(0, 1, (0, 2)), (1, 2, (0, 1)), (2, 0, (1, 2))]
    """
    chunk = size / schedule.chunks
    sent: list[Message] = []
    before: tuple[int, ...] = ()
    recent: dict[int, list[int]] = defaultdict(list)  # by rank: its last sends, and messages since
    for round_ in schedule.rounds:
        pairs = zip(*(column.tolist() for column in _exchange(round_)), strict=True)
        current = [
            Message(id_, src, dst, count * chunk, before if lockstep else tuple(recent[src]))
            for id_, (src, dst, count) in enumerate(pairs, start=len(sent))
        ]
        sent += current
        before = tuple(message.id for message in current)
        _remember(current, recent)
    return sent


def _remember(current: list[Message], recent: dict[int, list[int]]) -> None:
    """Forget what a rank's new sends have waited for, and keep the sends and later messages."""
    for src in {message.src for message in current}:
        recent[src] = []
    for message in current:
        recent[message.src].append(message.id)
        recent[message.dst].append(message.id)


class Exchange(NamedTuple):
    """The messages of a round, one for each pair of ranks: `chunks` chunks from `src` to `dst`."""

    src: Indices
    dst: Indices
    chunks: Indices


def exchanges(schedule: CollectiveSchedule) -> list[tuple[Exchange, int]]:
    """The messages of all rounds. Successive rounds with the same messages are one entry with the
    number of rounds; the chunks in the messages may differ.

    >>> from sim.collectives.algorithms import ring
    >>> [(exchange.dst.tolist(), times) for exchange, times in exchanges(ring.all_reduce(4))]
    [([1, 2, 3, 0], 6)]
    """
    runs: list[tuple[Exchange, int]] = []
    before: Round | None = None
    for round_ in schedule.rounds:
        same = before is not None and round_.src is before.src and round_.dst is before.dst
        exchange = runs[-1][0] if same else _exchange(round_)
        if runs and all(map(np.array_equal, exchange, runs[-1][0])):
            runs[-1] = runs[-1][0], runs[-1][1] + 1
        else:
            runs.append((exchange, 1))
        before = round_
    return runs


def _exchange(round_: Round) -> Exchange:
    most = int(max(round_.src.max(), round_.dst.max())) + 1
    pairs, chunks = np.unique(round_.src * most + round_.dst, return_counts=True)
    return Exchange(pairs // most, pairs % most, chunks)
