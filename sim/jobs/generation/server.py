"""A server on the engine's clock: continuous batching of requests.

A step takes a token for each sequence that decodes, and chunks of prompts as far as the budget
goes (chunked prefill, Agrawal et al. 2023). New sequences are admitted in order of submission while
the batch and the cache have room for them. If the cache runs out of blocks, the sequence that was
admitted last loses its cache and waits at the head of the queue for its prompt and answer to be
computed again (vLLM, Kwon et al. 2023, section 4.5).

Between two changes of the batch the server leaps over all decode steps at once (`leap`), so that
it needs about two events for an answer.
"""

from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

from sim.config.errors import InputError
from sim.engine.events import then
from sim.engine.live_cluster import Event, LiveCluster
from sim.jobs.generation.cache import Cache, Pages
from sim.jobs.generation.leap import Pace
from sim.jobs.generation.request import Answer, Request
from sim.jobs.generation.speed import Speed

__all__ = ["Answer", "Request", "Server", "Speed"]


@dataclass(slots=True, eq=False)
class _Sequence:
    """A request on the server. The tokens of its answer are `written` + (step - `since`) while it
    decodes. `target` tokens have to be computed before it does, `computed` of them are, or lie in
    blocks of its prefix or in those that it has `given` back: how many, and when they are lost.
    It is `promised` so many bytes."""

    request: Request
    answer: Answer
    done: Event
    number: int
    written: int = 0
    since: int = 0
    target: int = 0
    computed: int = 0
    given: tuple[int, float] | None = None
    promised: float = 0.0
    state: str = "waiting"
    said: int = 0  # tokens that are booked to versions
    turn: int = 0  # counts admissions, by which stale ends are told

    @property
    def left(self) -> int:
        return self.request.answer - self.written


@dataclass(slots=True, eq=False)
class _Prefix:
    """Blocks of a prompt that `users` share."""

    tokens: int
    users: int = 0


@dataclass(slots=True)
class Moment:
    """The state of a server from a moment on: sequences in its batch, bytes of its cache that are
    held, and tokens that attention reads in a step."""

    at: float
    batch: int
    used: float
    read: int


@dataclass(eq=False)
class Server:
    """A server of `speed` on a cluster's clock. Error messages call it `name`; with `keep` it keeps
    its states in `moments`. Steps take `slowdown` times as long as `speed` says."""

    cluster: LiveCluster
    speed: Speed
    name: str = "server"
    version: int = 0
    keep: bool = False
    slowdown: float = 1.0
    moments: list[Moment] = field(default_factory=list)
    busy: float = 0.0  # seconds in steps
    prefilling: float = 0.0  # seconds of steps with prompts among them
    tokens: int = 0  # written so far
    computed: int = 0  # tokens of prompts, computed again included
    preemptions: int = 0

    def __post_init__(self) -> None:
        speed = self.speed
        block = speed.engine.block
        pages = (
            Pages(window, size * block, block)
            for window, size in zip(speed.windows, speed.window_bytes, strict=True)
        )
        self._cache = Cache(speed.room, tuple(pages))
        self._promised = 0.0  # bytes that all admitted sequences are reckoned with
        self._queue: deque[_Sequence] = deque()
        self._chunked: list[_Sequence] = []  # admitted, with prompts to be computed
        self._running: dict[int, _Sequence] = {}  # by number, in order of admission
        self._ends: list[tuple[int, int, int]] = []  # step, number, turn
        self._prefixes: dict[Hashable, _Prefix] = {}
        self._numbers = count()
        self._known: dict[int, _Sequence] = {}  # by the identity of the request
        self._paused: Event | None = None
        self._swaps: list[tuple[int, Event]] = []
        self._aborted: list[_Sequence] = []
        # The leap under way: its beginning, its pace and steps; 0 steps between leaps.
        self._began, self._pace, self._steps = 0.0, Pace(0.0, 0.0), 0
        self._plan: list[tuple[_Sequence, int]] = []  # chunks of the step under way
        self._epoch = 0
        self._idle = True

    # --- What others ask --------------------------------------------------------------------------

    def submit(self, request: Request) -> Event:
        """Fires with the `Answer` when it is finished or aborted. Raises `InputError` for one that
        the cache cannot hold."""
        prompt, answer = request.prompt, request.answer
        if prompt < 1 or answer < 1:
            fault = f"a prompt of {prompt} and an answer of {answer} tokens"
            raise InputError(self.name, fault, "give at least one token to both")
        whole = prompt + request.continues + answer
        if self._cache.size(whole) > self._cache.room:
            most = self.speed.cache_tokens
            fault = f"{whole:,} tokens of a prompt with its answer, but the cache holds {most:,}"
            raise InputError(self.name, fault, "raise tp or pp, or shorten them")
        done = self.cluster.event()
        own = _Sequence(request, Answer(request, self.cluster.now), done, next(self._numbers))
        self._known[id(request)] = own
        self._queue.append(own)
        if self._idle:
            self._wake()
        elif self._steps > 1 and self._admits(own):
            self._cut()
        return done

    def pause(self) -> Event:
        """Stop behind the step under way; caches stay. Fires when the server stands."""
        if self._paused is None:
            self._paused = self.cluster.event()
            if self._idle:
                self._paused.succeed()
            else:
                self._cut()
        return self._paused

    def resume(self) -> None:
        """Go on after a pause."""
        self._paused = None
        if self._idle:
            self._wake()

    def swap_weights(self, version: int) -> Event:
        """New weights behind the step under way, at once where the server stands; sequences go on
        with their caches. Fires then. How long the weights take is not the server's to know."""
        done = self.cluster.event()
        self._swaps.append((version, done))
        if self._idle:
            self._swap()
        else:
            self._cut()
        return done

    def release_cache(self) -> None:
        """Give the memory of the cache back: all sequences wait to be computed again. Only for a
        server that stands."""
        if not self._idle:
            raise InputError(self.name, "its cache is in use", "pause it first")
        for own in [*reversed(self._running.values()), *reversed(self._chunked)]:
            self._preempt(own)
        self._forget()

    def _forget(self) -> None:
        """Free blocks hold nothing of use any more."""
        for own in self._queue:
            own.given = None

    def abort(self, request: Request) -> Answer:
        """End a request; its answer has the tokens so far. The place that it had is free behind the
        step under way."""
        own = self._known.pop(id(request), None)
        if own is None:
            raise InputError(self.name, "no such request is under way", "submit it first")
        if own.state == "running":
            step = self._cache.step + self._elapsed()
            own.written, own.since = own.written + step - own.since, step
            self._book(own)
            self._aborted.append(own)
            own.state = "aborting"
            if self._idle:
                self._clear()
            else:
                self._cut()
        else:
            if own.state == "waiting":
                self._queue.remove(own)
            else:
                self._chunked.remove(own)
                self._release(own, own.target)
            own.state = "ended"
        self._end(own)
        return own.answer

    @property
    def batch(self) -> int:
        """Sequences that decode or whose prompts are computed."""
        return len(self._running) + len(self._chunked)

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._queue)

    @property
    def used(self) -> float:
        """Bytes of the cache that are held, of all its GPUs that have sequences of their own."""
        return self._cache.used

    # --- The clock --------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Begin at the end of this instant's submissions."""
        self._idle = False
        self._alarm(0.0)

    def _alarm(self, seconds: float) -> None:
        self._epoch += 1
        epoch = self._epoch
        then(self.cluster.sleep(seconds), lambda _: self._ring(epoch))

    def _ring(self, epoch: int) -> None:
        if epoch == self._epoch:
            self._finish()
            self._next()

    def _elapsed(self) -> int:
        """Steps of the leap under way that have ended."""
        if not self._steps or self._plan:
            return 0
        return min(self._pace.steps(self.cluster.now - self._began), self._steps)

    def _cut(self) -> None:
        """End the leap under way behind its present step."""
        if self._steps <= 1 or self._plan:
            return
        steps = self._elapsed()
        steps += self._began + self._pace.seconds(steps) < self.cluster.now or steps == 0
        if steps < self._steps:
            self._steps = steps
            left = self._began + self._pace.seconds(steps) - self.cluster.now
            self._alarm(max(left, 0.0))

    def _finish(self) -> None:
        """The steps under way have ended."""
        steps, self._steps = self._steps, 0
        if not steps:
            return
        seconds = self.cluster.now - self._began
        self.busy += seconds
        self.tokens += steps * len(self._running)
        self._cache.advance(steps)
        if self._plan:
            self.prefilling += seconds
            self._computed()
        self._clear()
        now = self._cache.step
        while self._ends and self._ends[0][0] <= now:
            _, number, turn = heappop(self._ends)
            own = self._running.get(number)
            if own is not None and own.turn == turn:
                self._stop(own)
                self._known.pop(id(own.request), None)
                self._end(own)

    def _next(self) -> None:
        """Begin the next steps, or stand."""
        if self._swaps:
            self._swap()
        if self._paused is not None:
            self._stand()
            if not self._paused.triggered:
                self._paused.succeed()
            return
        if not self._make_room():
            self._admit()
        self._began = self.cluster.now
        batch = len(self._running)
        if self._chunked:
            self._plan = list(self._chunks(batch))
            chunks = [(tokens, own.computed) for own, tokens in self._plan]
            self._steps = 1
            seconds = self.slowdown * self.speed.step(batch, self._cache.read, chunks)
        elif batch:
            cache = self._cache
            self._steps = self._leap()
            pace = self.speed.steps(batch).pace(cache.read, cache.growing)
            self._pace = pace if self.slowdown == 1.0 else pace.slower(self.slowdown)
            seconds = self._pace.seconds(self._steps)
        else:
            self._stand()
            return
        self._keep()
        self._alarm(seconds)

    def _stand(self) -> None:
        self._idle = True
        self._keep()

    def _keep(self) -> None:
        if self.keep:
            cache = self._cache
            state = Moment(self.cluster.now, self.batch, cache.used, cache.pages[0].read)
            self.moments.append(state)

    def _leap(self) -> int:
        """Decode steps until a sequence ends, comes to the end of a window or finds no block."""
        now = self._cache.step
        while True:
            step, number, turn = self._ends[0]
            own = self._running.get(number)
            if own is not None and own.turn == turn:
                break
            heappop(self._ends)
        return max(1, self._cache.lasts(min(step - now, self._cache.steady())))

    def _swap(self) -> None:
        """The weights that were handed over last are in use from now on."""
        for own in self._running.values():
            self._catch_up(own)
            self._book(own)
        self._forget()  # what waits is computed with the new weights
        for version, done in self._swaps:
            self.version = version
            done.succeed(version)
        self._swaps.clear()

    # --- The batch --------------------------------------------------------------------------------

    def _admits(self, own: _Sequence) -> bool:
        """Whether the batch and the cache have room for a sequence."""
        engine = self.speed.engine
        if self.batch >= engine.sequences * self.speed.layout.dp:
            return False
        return self._cache.has_room(self._needed(own), self._promised)

    def _needed(self, own: _Sequence) -> float:
        """Bytes that a sequence needs, as the engine estimates."""
        request = own.request
        target = request.prompt + request.continues + own.written
        shared = self._shared(request, target) // self.speed.engine.block
        return self._cache.size(target + self._estimate(own)) - shared * self._cache.pages[0].size

    def _estimate(self, own: _Sequence) -> int:
        """Tokens of an answer that the engine reserves."""
        engine, request = self.speed.engine, own.request
        left = (request.cap or request.answer) - own.written
        return min(int(engine.reserved * left), engine.estimate)

    def _shared(self, request: Request, target: int) -> int:
        """Tokens of a prompt that lie in blocks of its prefix."""
        prefix = self._prefixes.get(request.prefix) if request.prefix is not None else None
        if prefix is None or self.speed.windows[0]:
            return 0
        return prefix.tokens

    def _admit(self) -> None:
        """Sequences from the head of the queue while a step has tokens for them."""
        budget = self._budget(len(self._running))
        budget -= sum(own.target - own.computed for own in self._chunked)
        while self._queue and budget > 0 and self._admits(self._queue[0]):
            own = self._queue.popleft()
            request = own.request
            own.state, own.turn = "prompt", own.turn + 1
            own.target = request.prompt + request.continues + own.written
            own.computed = max(self._shared(request, own.target), self._kept(own))
            own.promised = self._needed(own)
            self._promised += own.promised
            self._cache.take(self._cache.size(own.target))
            self._join(own)
            self._chunked.append(own)
            if own.answer.admitted is None:
                own.answer.admitted = self.cluster.now
            budget -= own.target - own.computed

    def _kept(self, own: _Sequence) -> int:
        """Tokens that a sequence finds in the blocks that it has given back."""
        if own.given is None or not self.speed.engine.reuses:
            return 0
        return min(self._cache.kept(*own.given), own.target - 1)

    def _join(self, own: _Sequence) -> None:
        """Share the blocks of the prefix, or let others share them."""
        request = own.request
        if request.prefix is None:
            return
        block = self.speed.engine.block
        prefix = self._prefixes.get(request.prefix)
        if prefix is None:
            prefix = self._prefixes[request.prefix] = _Prefix((request.prompt - 1) // block * block)
        elif not self.speed.windows[0]:
            self._cache.used -= prefix.tokens // block * self._cache.pages[0].size
        prefix.users += 1

    def _release(self, own: _Sequence, tokens: int) -> None:
        """Give back the blocks of a sequence; those of its prefix when nobody shares them."""
        self._cache.used -= self._cache.size(tokens)
        self._promised -= own.promised
        request = own.request
        if request.prefix is None:
            return
        prefix = self._prefixes[request.prefix]
        prefix.users -= 1
        if not prefix.users:
            del self._prefixes[request.prefix]
        elif not self.speed.windows[0]:
            block = self.speed.engine.block
            self._cache.used += prefix.tokens // block * self._cache.pages[0].size

    def _budget(self, batch: int) -> int:
        """Tokens of prompts in a step."""
        return self.speed.engine.budget * self.speed.layout.dp - batch

    def _chunks(self, batch: int) -> Iterator[tuple[_Sequence, int]]:
        """The prompts of a step and how many tokens of each are computed."""
        budget = max(self._budget(batch), 1)
        for own in self._chunked:
            if budget <= 0:
                return
            tokens = min(own.target - own.computed, budget)
            budget -= tokens
            yield own, tokens

    def _computed(self) -> None:
        """Chunks have been computed; prompts that are complete have given a token."""
        for own, tokens in self._plan:
            if own.state != "prompt":
                continue  # aborted meanwhile
            own.computed += tokens
            self.computed += tokens
            if own.computed < own.target:
                continue
            own.written += 1
            self.tokens += 1
            own.state, own.since = "running", self._cache.step
            if own.answer.first is None:
                own.answer.first = self.cluster.now
            self._running[own.number] = own
            self._cache.add(own.target)
            heappush(self._ends, (own.since + own.left, own.number, own.turn))
        self._chunked = [own for own in self._chunked if own.state == "prompt"]
        self._plan = []

    def _make_room(self) -> bool:
        """Take the caches of sequences admitted last until a step has blocks for all others;
        whether any lost its cache."""
        before = self.preemptions
        while self._running and not self._cache.has_room(self._cache.growth(1)):
            if self._chunked:
                self._preempt(self._chunked[-1])
            else:
                self._preempt(next(reversed(self._running.values())))
        return self.preemptions > before

    def _preempt(self, own: _Sequence) -> None:
        lost_from = self._cache.lost_from
        if own.state == "running":
            self._stop(own)
            tokens = own.request.prompt + own.request.continues + own.written - 1
            own.given = tokens, lost_from
        else:
            self._chunked.remove(own)
            self._release(own, own.target)
        own.state = "waiting"
        own.answer.preempted += 1
        self.preemptions += 1
        self._queue.appendleft(own)

    def _catch_up(self, own: _Sequence) -> None:
        """Count the tokens that a running sequence has written."""
        own.written += self._cache.step - own.since
        own.since = self._cache.step

    def _stop(self, own: _Sequence) -> None:
        """A running sequence decodes no more, and holds no blocks."""
        self._catch_up(own)
        self._leave(own, own.written)

    def _leave(self, own: _Sequence, written: int) -> None:
        tokens = own.request.prompt + own.request.continues + written - 1
        del self._running[own.number]
        self._cache.remove(tokens)
        self._release(own, tokens)
        self._book(own)

    def _clear(self) -> None:
        """Sequences that were aborted in the step that has ended leave."""
        for own in self._aborted:
            counted = own.written
            self._catch_up(own)
            written, own.written = own.written, counted
            self.tokens -= written - counted
            self._leave(own, written)
            own.state = "ended"
        self._aborted.clear()

    def _book(self, own: _Sequence) -> None:
        """Tokens written since the last booking are of the present version."""
        if own.written > own.said:
            versions = own.answer.versions
            versions[self.version] = versions.get(self.version, 0) + own.written - own.said
            own.said = own.written

    def _end(self, own: _Sequence) -> None:
        answer = own.answer
        answer.tokens, answer.ended = own.written, self.cluster.now
        answer.finished = own.written >= own.request.answer
        own.done.succeed(answer)
