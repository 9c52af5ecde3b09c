"""Messages that contend: flows in classes of equal hops, played from event to event on arrays.

Hops that load shared links alike are a group, whose messages have the same rate at any moment. So a
clock that counts bytes tells when a group's messages end (virtual time, Demers, Keshav and Shenker
1989). Once equal rounds repeat each other with a constant period, most of the remaining rounds are
skipped.
"""

from bisect import bisect_right
from collections import Counter
from heapq import heappop, heappush

import numpy as np

from sim.config.counting import polled
from sim.engine.fair_shares import FairShares, Share
from sim.engine.message_graph import Floats, MessageGraph, Run

_AT_ONCE = 1e-12  # share of a message: flows that have at most this share left end together
_EQUAL = 1e-8  # share of a round: progress that differs by no more counts as equal
_STEADY = 1e-12  # share of a period: periods that differ by no more count as equal
_FAST = 1e300  # B/s of flows that no link holds back yet
_COMPARED = 4  # number of earlier rounds with which a round is compared

Sends = dict[int, list[tuple[int, float]]]


class FlowPlay:
    """A message graph while it is played; `instants` counts the moments with events.

    With `record`, no round is skipped, and `sent` lists the messages: the hop, the round, when the
    message was sent and when it arrived (s).
    """

    def __init__(self, graph: MessageGraph, *, record: bool = False) -> None:
        self.record, self.sent = record, list[tuple[int, int, float, float]]()
        self._begun = [0.0] * len(graph.src)
        self.graph, self.now, self.instants = graph, 0.0, 0
        self.done: list[float] = graph.ready.tolist()
        self._src, self._dst = graph.src.tolist(), graph.dst.tolist()
        self._delay: list[float] = graph.delay.tolist()
        self._first = np.cumsum([0, *(run.times for run in graph.runs)]).tolist()
        self._sends = [self._by_source(run) for run in graph.runs]
        self._needs = [self._ends(run) for run in graph.runs]
        self._near = _AT_ONCE * max(float(run.bytes.max()) for run in graph.runs)
        self._frontier = [0] * len(graph.ready)  # the first unfinished round of each rank
        self._at, self._behind = Counter(self._frontier), 0  # rounds that all ranks have finished
        self._left: dict[tuple[int, int], int] = {}  # unfinished messages of a rank and a round
        self._round = [0] * len(graph.src)  # the round of the message on each hop
        self._bytes = [0.0] * len(graph.src)
        self._waiting: list[tuple[float, int]] = []  # messages whose delay is not over
        self._snapshots: list[tuple[int, float, Floats]] = []
        self._periods: dict[int, float] = {}  # seconds of the last n rounds, by n
        self._groups()

    def _by_source(self, run: Run) -> Sends:
        sends: Sends = {}
        for hop, size in zip(run.hop.tolist(), run.bytes.tolist(), strict=True):
            sends.setdefault(self._src[hop], []).append((hop, size))
        return sends

    def _ends(self, run: Run) -> Counter[int]:
        """The number of messages that each rank sends or receives in a round."""
        hops = run.hop.tolist()
        return Counter([self._src[hop] for hop in hops] + [self._dst[hop] for hop in hops])

    def _groups(self) -> None:
        graph, width = self.graph, self.graph.route.shape[1]
        users = np.bincount(graph.route.ravel() + 1, minlength=len(graph.capacity) + 1)[1:]
        shared = np.flatnonzero(users > 1)
        number = np.full(len(users) + 1, -1)
        number[shared] = np.arange(len(shared))
        route = number[graph.route]
        capacity = np.append(graph.capacity, np.inf)[graph.route]
        with np.errstate(divide="ignore"):
            alone = np.where(route < 0, capacity / graph.load, np.inf).min(1)
        key = np.column_stack([route, np.where(route < 0, 0.0, graph.load), alone])
        rows, group = np.unique(key, axis=0, return_inverse=True)
        self._group: list[int] = group.ravel().tolist()
        pairs = [zip(row[:width], row[width:-1], strict=True) for row in rows.tolist()]
        self._shares = FairShares(graph.capacity[shared].tolist())
        self._share_of = [
            Share(tuple((int(link), load) for link, load in pair if link >= 0), number, limit)
            for number, (pair, limit) in enumerate(zip(pairs, rows[:, -1].tolist(), strict=True))
        ]
        self._clock, self._rate = np.zeros(len(rows)), np.minimum(rows[:, -1], _FAST)
        self._head = np.full(len(rows), np.inf)
        self._queues: list[list[tuple[float, int]]] = [[] for _ in rows]
        self._touched: set[int] = set()  # groups whose number of flows has changed

    def play(self) -> Floats:
        """Play the graph and return when each rank is done (s)."""
        for rank, ready in enumerate(self.graph.ready.tolist()):
            self._enter(rank, 0, ready)
        with polled(lambda: self._behind, total=self._first[-1], unit="round"):
            while self._step():
                pass
        return np.array(self.done)

    def _step(self) -> bool:
        """Go on to the next moment at which messages end or begin to flow."""
        next_end = self.now + ((self._head - self._clock) / self._rate).min()
        moment = min(next_end, self._waiting[0][0] if self._waiting else np.inf)
        if moment == np.inf:
            return False
        self._clock += self._rate * (moment - self.now)
        self.now, lowest = float(moment), min(self._at)
        self._behind = lowest
        self.instants += 1
        for hop in self._ended():
            self._arrive(hop)
        while self._waiting and self._waiting[0][0] <= moment * (1.0 + 1e-14):
            self._flow(heappop(self._waiting)[1])
        if not self.record and lowest < min(self._at) < self._first[-1]:
            self._repeat(min(self._at))
        for group in self._touched:
            self._shares.resize(self._share_of[group], len(self._queues[group]))
        self._touched.clear()
        for share in self._shares.settle():
            self._rate[share.order] = share.fair
        return True

    def _flow(self, hop: int) -> None:
        group = self._group[hop]
        queue = self._queues[group]
        if not queue:
            self._clock[group] = 0.0
        heappush(queue, (float(self._clock[group]) + self._bytes[hop], hop))
        self._head[group] = queue[0][0]
        self._touched.add(group)

    def _ended(self) -> list[int]:
        ended = []
        for group in np.flatnonzero(self._head - self._clock <= self._near).tolist():
            queue, last = self._queues[group], self._clock[group] + self._near
            while queue and queue[0][0] <= last:
                ended.append(heappop(queue)[1])
            self._touched.add(group)
            self._head[group] = queue[0][0] if queue else np.inf
        return ended

    def _arrive(self, hop: int) -> None:
        number = self._round[hop]
        if self.record:
            self.sent.append((hop, number, self._begun[hop], self.now))
        needs = self._needs[bisect_right(self._first, number) - 1]
        for rank in (self._src[hop], self._dst[hop]):
            left = self._left.get((rank, number), needs[rank]) - 1
            self._left[rank, number] = left
            if left == 0 and self._frontier[rank] == number:
                del self._left[rank, number]
                self._enter(rank, number + 1, max(self.now, self.done[rank]))

    def _enter(self, rank: int, number: int, moment: float) -> None:
        """Let a rank enter a round: send its messages of the round, and go on to the next round if
        all messages of this round have already arrived."""
        while number < self._first[-1]:
            run = bisect_right(self._first, number) - 1
            if rank not in self._needs[run]:
                number = self._first[run + 1]
                continue
            for hop, size in self._sends[run].get(rank, ()):
                self._round[hop], self._bytes[hop], self._begun[hop] = number, size, moment
                heappush(self._waiting, (moment + self._delay[hop], hop))
            if self._left.get((rank, number)) != 0:
                break
            del self._left[rank, number]
            number += 1
        self._at[self._frontier[rank]] -= 1
        if not self._at[self._frontier[rank]]:
            del self._at[self._frontier[rank]]
        self._at[number] += 1
        self._frontier[rank], self.done[rank] = number, moment

    def _repeat(self, lowest: int) -> None:
        """Skip rounds that repeat earlier rounds, once all ranks of a run have reached the run.

        The progress of every hop, in rounds, is compared with earlier progress. If both are equal,
        all later rounds repeat the period in between (a periodic regime).
        """
        run = bisect_right(self._first, lowest) - 1
        last = self._first[run + 1]
        highest = max((self._frontier[rank] for rank in self._needs[run]), default=last)
        if last - highest < 2:
            return
        progress = self._progress(self.graph.runs[run]) - lowest
        for before, moment, earlier in self._snapshots:
            period, seconds = lowest - before, self.now - moment
            rounds = (last - 1 - highest) // period * period
            alike = len(earlier) == len(progress) and np.abs(progress - earlier).max() <= _EQUAL
            was, self._periods[period] = self._periods.get(period, 0.0), seconds
            if alike and rounds > 0 and abs(seconds - was) <= _STEADY * seconds:
                self._skip(run, rounds, seconds / period * rounds)
                return
        self._snapshots = [(lowest, self.now, progress), *self._snapshots[: _COMPARED - 1]]

    def _progress(self, run: Run) -> Floats:
        """The progress of each hop of a run: its finished rounds, plus the finished part of its
        present round. The delay counts as half of a round, the bytes as the other half."""
        part = dict.fromkeys(run.hop.tolist(), 1.0)
        for moment, hop in self._waiting:
            if delay := self._delay[hop]:
                part[hop] = 0.5 * (1.0 - (moment - self.now) / delay)
        for queue, clock in zip(self._queues, self._clock.tolist(), strict=True):
            for end, hop in queue:
                part[hop] = 1.0 - 0.5 * (end - clock) / self._bytes[hop]
        return np.array([self._frontier[self._src[hop]] + seconds for hop, seconds in part.items()])

    def _skip(self, run: int, rounds: int, seconds: float) -> None:
        """Move the state of a run on by a number of rounds and their seconds."""
        inside = self._needs[run]
        self._frontier = [
            at + rounds if rank in inside else at for rank, at in enumerate(self._frontier)
        ]
        self._at = Counter(self._frontier)
        self._left = {(rank, at + rounds): left for (rank, at), left in self._left.items()}
        self._round = [at + rounds for at in self._round]
        self._waiting = [(moment + seconds, hop) for moment, hop in self._waiting]
        self.done = [at + seconds for at in self.done]
        self.now += seconds
        self._snapshots = []
