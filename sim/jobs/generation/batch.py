"""The sequences of a server: which sequences wait, compute their prompt, decode, or give way.

New sequences are admitted in order of submission while the batch and the cache have room for them.
If the cache runs out of blocks, the sequence that was admitted last loses its cache and waits at
the head of the queue; its prompt and answer are then computed again (vLLM, Kwon et al. 2023,
section 4.5). This module does not know the clock.
"""

from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Literal

from sim.engine.live_cluster import Event
from sim.jobs.generation.cache import Cache, Pages, Prefixes
from sim.jobs.generation.speed import Speed


@dataclass(slots=True, eq=False)
class Request:
    """A `prompt` and an `answer`, in tokens. The server learns the length of the answer only at its
    end; it knows the longest possible length `cap`. Requests with equal `prefix` share a prompt,
    which the server computes once while any of these requests runs. An answer already has
    `continues` tokens, for which the server needs a cache."""

    prompt: int
    answer: int
    prefix: Hashable = None
    continues: int = 0
    cap: int = 0


@dataclass(slots=True, eq=False)
class Answer:
    """The answer to a request: its written `tokens`, without the tokens that it `continues`;
    `finished` says that it was not aborted. `submitted`, `admitted` (for the first time), `first`
    (token) and `ended` are moments (s), None if they did not come. `preempted` counts how often the
    sequence lost its cache. `versions` are the tokens by version of the weights."""

    request: Request
    submitted: float
    tokens: int = 0
    finished: bool = False
    admitted: float | None = None
    first: float | None = None
    ended: float | None = None
    preempted: int = 0
    versions: dict[int, int] = field(default_factory=dict)

    @property
    def wait(self) -> float | None:
        """Seconds to the first token (TTFT)."""
        return None if self.first is None else self.first - self.submitted

    @property
    def pace(self) -> float | None:
        """Seconds of each token after the first (TPOT); None for fewer than two tokens."""
        if self.ended is None or self.first is None or self.tokens < 2:
            return None
        return (self.ended - self.first) / (self.tokens - 1)


@dataclass(slots=True, eq=False)
class Sequence:
    """A request on the server; `done` fires with its answer.

    While it decodes, its answer has `written` + (step - `since`) tokens. Before, `target` tokens
    have to be computed. `computed` counts the tokens that are computed, or found in blocks of a
    shared prompt or in blocks that the sequence gave back. `given` describes the blocks that it
    gave back: their number of tokens, and the value of `Cache.handed` at which their tokens begin
    to be lost. The engine reserves `promised` bytes. `booked` tokens are counted for a version of
    the weights. `turn` counts admissions, to recognise an end that was planned in an earlier turn.
    """

    request: Request
    answer: Answer
    done: Event
    number: int
    state: Literal["waiting", "prompt", "running", "leaving", "ended"] = "waiting"
    written: int = 0
    since: int = 0
    target: int = 0
    computed: int = 0
    given: tuple[int, float] | None = None
    promised: float = 0.0
    booked: int = 0
    turn: int = 0

    @property
    def wanted(self) -> int:
        """The tokens that have to be computed before the sequence decodes."""
        return self.request.prompt + self.request.continues + self.written

    def catch_up(self, step: int) -> None:
        """Count the tokens that were written before `step`."""
        self.written += step - self.since
        self.since = step

    def book(self, version: int) -> None:
        """Count the tokens written since the last booking for a version of the weights."""
        if self.written > self.booked:
            versions = self.answer.versions
            versions[version] = versions.get(version, 0) + self.written - self.booked
            self.booked = self.written


@dataclass(eq=False)
class Batch:
    """The sequences of a server of `speed`. Some wait in the `queue`, some have their `prompts`
    computed, and some decode (`running`, by number). `prompts` and `running` are in order of
    admission. `plan` has the chunks of prompts of the step under way. So far `tokens` tokens of
    answers were written and `computed` tokens of prompts computed."""

    speed: Speed
    version: int = 0
    tokens: int = 0
    computed: int = 0
    preemptions: int = 0
    queue: deque[Sequence] = field(default_factory=deque)
    prompts: list[Sequence] = field(default_factory=list)
    running: dict[int, Sequence] = field(default_factory=dict)
    plan: list[tuple[Sequence, int]] = field(default_factory=list)
    _leaving: list[Sequence] = field(default_factory=list)
    _ends: list[tuple[int, int, int]] = field(default_factory=list)  # step, number, turn
    _promised: float = 0.0

    def __post_init__(self) -> None:
        speed, block = self.speed, self.speed.engine.block
        pages = (
            Pages(window, size * block, block)
            for window, size in zip(speed.windows, speed.window_bytes, strict=True)
        )
        self._most = speed.engine.sequences * speed.layout.dp  # the most sequences
        self.cache = Cache(speed.room, tuple(pages), speed.state_bytes)
        self.prefixes = Prefixes(self.cache)

    @property
    def size(self) -> int:
        """The number of sequences that decode or whose prompts are computed."""
        return len(self.running) + len(self.prompts)

    # --- Admission --------------------------------------------------------------------------------

    def admits(self, sequence: Sequence) -> bool:
        """Whether the batch and the cache have room for a sequence."""
        return self._has_room(self._needed(sequence))

    def _has_room(self, needed: float) -> bool:
        if self.size >= self._most:
            return False
        return self.cache.has_room(needed, self._promised)

    def _needed(self, sequence: Sequence) -> float:
        """Bytes that a sequence needs, as the engine estimates."""
        engine, request, tokens = self.speed.engine, sequence.request, sequence.wanted
        if engine.reserved:
            left = (request.cap or request.answer) - sequence.written
            tokens += min(int(engine.reserved * left), engine.estimate)
        return self.cache.size(tokens) - self.prefixes.size(request.prefix)

    def admit(self, now: float) -> None:
        """Admit sequences from the head of the queue while the step has tokens left, the batch has
        a place, and the cache has room."""
        budget = self._budget - sum(
            sequence.target - sequence.computed for sequence in self.prompts
        )
        while self.queue and budget > 0:
            sequence = self.queue[0]
            sequence.promised = self._needed(sequence)
            if not self._has_room(sequence.promised):
                return
            self.queue.popleft()
            self._begin(sequence)
            if sequence.answer.admitted is None:
                sequence.answer.admitted = now
            budget -= sequence.target - sequence.computed

    def _begin(self, sequence: Sequence) -> None:
        """Give a sequence its blocks."""
        key = sequence.request.prefix
        sequence.state, sequence.turn, sequence.target = (
            "prompt",
            sequence.turn + 1,
            sequence.wanted,
        )
        sequence.computed = max(self.prefixes.tokens(key), self._kept(sequence))
        self._promised += sequence.promised
        self.cache.take(self.cache.size(sequence.target))
        self.prefixes.join(key, sequence.request.prompt)
        self.prompts.append(sequence)

    def _kept(self, sequence: Sequence) -> int:
        """How many tokens a sequence finds again in the blocks that it has given back."""
        if sequence.given is None or self.cache.states or not self.speed.engine.reuses:
            return 0
        return min(self.cache.kept(*sequence.given), sequence.target - 1)

    @property
    def _budget(self) -> int:
        """How many tokens of prompts a step may compute."""
        return self.speed.engine.budget * self.speed.layout.dp - len(self.running)

    # --- Steps ------------------------------------------------------------------------------------

    def chunks(self) -> Iterator[tuple[Sequence, int]]:
        """Yield the sequences whose prompts the step computes, and how many tokens of each."""
        budget = max(self._budget, 1)
        for sequence in self.prompts:
            if budget <= 0:
                return
            tokens = min(sequence.target - sequence.computed, budget)
            budget -= tokens
            yield sequence, tokens

    def leap(self) -> int:
        """How many decode steps pass until a sequence ends, fills its window or finds no block."""
        while (end := self._ends[0]) and self._of(end) is None:
            heappop(self._ends)
        return max(1, min(end[0] - self.cache.step, self.cache.steady(), self.cache.lasts()))

    def advance(self, steps: int, now: float) -> list[Sequence]:
        """End `steps` steps; return the sequences whose answers are finished."""
        self.tokens += steps * len(self.running)
        self.cache.advance(steps)
        self._compute(now)
        self.clear()
        ended = []
        while self._ends and self._ends[0][0] <= self.cache.step:
            sequence = self._of(heappop(self._ends))
            if sequence is not None:
                self._stop(sequence)
                sequence.state = "ended"
                ended.append(sequence)
        return ended

    def _of(self, end: tuple[int, int, int]) -> Sequence | None:
        """The sequence of a planned end; None if the sequence has lost its place since then."""
        _, number, turn = end
        sequence = self.running.get(number)
        return sequence if sequence is not None and sequence.turn == turn else None

    def _compute(self, now: float) -> None:
        """End the planned chunks; a sequence whose prompt is complete writes its first token."""
        for sequence, tokens in self.plan:
            if sequence.state != "prompt":
                continue  # aborted meanwhile
            sequence.computed += tokens
            self.computed += tokens
            if sequence.computed == sequence.target:
                self._run(sequence, now)
        if self.plan:
            self.prompts = [sequence for sequence in self.prompts if sequence.state == "prompt"]
            self.plan = []

    def _run(self, sequence: Sequence, now: float) -> None:
        sequence.written += 1
        self.tokens += 1
        sequence.state, sequence.since = "running", self.cache.step
        if sequence.answer.first is None:
            sequence.answer.first = now
        self.running[sequence.number] = sequence
        self.cache.add(sequence.target)
        left = sequence.request.answer - sequence.written
        heappush(self._ends, (sequence.since + left, sequence.number, sequence.turn))

    # --- Sequences that leave ---------------------------------------------------------------------

    def make_room(self) -> bool:
        """Preempt the sequences admitted last until a step has blocks for all others; return
        whether a sequence lost its cache."""
        before = self.preemptions
        while self.running and not self.cache.lasts():
            sequence = self.prompts[-1] if self.prompts else next(reversed(self.running.values()))
            self._preempt(sequence)
        return self.preemptions > before

    def empty(self) -> None:
        """Preempt all sequences, and forget the tokens in their blocks."""
        for sequence in [*reversed(self.prompts), *reversed(self.running.values())]:
            self._preempt(sequence)
        self._forget()

    def _preempt(self, sequence: Sequence) -> None:
        lost_from = self.cache.lost_from
        if sequence.state == "running":
            self._stop(sequence)
            sequence.given = sequence.wanted - 1, lost_from
        else:
            self._drop(sequence)
        sequence.state = "waiting"
        sequence.answer.preempted += 1
        self.preemptions += 1
        self.queue.appendleft(sequence)

    def swap(self, version: int) -> None:
        """Change the version of the weights. Tokens count for the new version from now on. Waiting
        sequences lose their cached tokens, which are computed again with the new weights."""
        for sequence in self.running.values():
            sequence.catch_up(self.cache.step)
            sequence.book(self.version)
        self._forget()
        self.version = version

    def _forget(self) -> None:
        for sequence in self.queue:
            sequence.given = None

    def abort(self, sequence: Sequence, elapsed: int) -> None:
        """End a sequence after `elapsed` steps of the leap under way. Its place is free after the
        step under way (`clear`)."""
        if sequence.state == "running":
            sequence.catch_up(self.cache.step + elapsed)
            sequence.book(self.version)
            self._leaving.append(sequence)
            sequence.state = "leaving"
            return
        if sequence.state == "waiting":
            self.queue.remove(sequence)
        else:
            self._drop(sequence)
        sequence.state = "ended"

    def clear(self) -> None:
        """Remove aborted sequences; the step in which they were aborted wrote no token for them."""
        for sequence in self._leaving:
            more = self.cache.step - sequence.since
            self.tokens -= more
            self._leave(sequence, sequence.wanted - 1 + more)
            sequence.state = "ended"
        self._leaving.clear()

    def _stop(self, sequence: Sequence) -> None:
        """Let a sequence stop decoding and give its blocks back."""
        sequence.catch_up(self.cache.step)
        sequence.book(self.version)
        self._leave(sequence, sequence.wanted - 1)

    def _leave(self, sequence: Sequence, tokens: int) -> None:
        """Let a running sequence with `tokens` tokens in the cache give its blocks back."""
        del self.running[sequence.number]
        self.cache.remove(tokens)
        self._release(sequence, tokens)

    def _drop(self, sequence: Sequence) -> None:
        """Let a sequence whose prompt is being computed give its blocks back."""
        self.prompts.remove(sequence)
        self._release(sequence, sequence.target)

    def _release(self, sequence: Sequence, tokens: int) -> None:
        self.cache.used -= self.cache.size(tokens)
        self._promised -= sequence.promised
        self.prefixes.leave(sequence.request.prefix)
