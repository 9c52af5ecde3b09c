"""A server on the engine's clock: continuous batching of requests.

A step computes a token for each sequence that decodes, and chunks of prompts up to its budget
(chunked prefill, Agrawal et al. 2023). `Batch` decides which sequences are in it. Between two
changes of the batch the server leaps over all decode steps at once (`leap`), so an answer needs
about two events.
"""

from dataclasses import dataclass, field
from itertools import count

from sim.config.errors import InputError
from sim.engine.events import then
from sim.engine.live_cluster import Event, LiveCluster
from sim.jobs.generation.batch import Answer, Batch, Request, Sequence
from sim.jobs.generation.leap import Pace
from sim.jobs.generation.speed import Speed

__all__ = ["Answer", "Request", "Server", "Speed"]


@dataclass(slots=True)
class Moment:
    """The state of a server from time `at`: sequences in its batch, used bytes of its cache, and
    tokens that attention reads in a step."""

    at: float
    batch: int
    used: float
    read: int


@dataclass(eq=False)
class Server:
    """A server of `speed` on a cluster's clock; its `batch` has the sequences, and counts their
    tokens. Error messages call it `name`; with `keep` it keeps its states in `moments`. Steps take
    `slowdown` times as long as `speed` says. `busy` counts seconds in steps so far."""

    cluster: LiveCluster
    speed: Speed
    name: str = "server"
    keep: bool = False
    slowdown: float = 1.0
    moments: list[Moment] = field(default_factory=list)
    busy: float = 0.0

    def __post_init__(self) -> None:
        self.batch = Batch(self.speed)
        self._numbers = count()
        self._known: dict[int, Sequence] = {}  # by id(request)
        self._paused: Event | None = None
        self._swaps: list[tuple[int, Event]] = []
        # The leap under way: its beginning, its pace and steps; 0 steps between leaps.
        self._began, self._pace, self._steps = 0.0, Pace(0.0, 0.0), 0
        self._epoch = 0
        self._idle = True

    # --- Calls from outside -----------------------------------------------------------------------

    def submit(self, request: Request) -> Event:
        """Queue a request. The event fires with the `Answer` when the request is finished or
        aborted. Raises `InputError` for a request that the cache cannot hold."""
        prompt, answer, cache = request.prompt, request.answer, self.batch.cache
        if prompt < 1 or answer < 1:
            fault = f"a prompt of {prompt} and an answer of {answer} tokens"
            raise InputError(self.name, fault, "give at least one token to both")
        if id(request) in self._known:
            raise InputError(self.name, "the request is under way already", "make another")
        whole = prompt + request.continues + answer
        if cache.size(whole) > cache.room:
            most = self.speed.cache_tokens
            fault = f"{whole:,} tokens of a prompt with its answer, but the cache holds {most:,}"
            raise InputError(self.name, fault, "raise tp or pp, or shorten the texts")
        done = self.cluster.event()
        sequence = Sequence(request, Answer(request, self.cluster.now), done, next(self._numbers))
        self._known[id(request)] = sequence
        self.batch.queue.append(sequence)
        if self._idle:
            if self._paused is None:
                self._wake()
        elif self._steps > 1 and self.batch.admits(sequence):
            self._cut()
        return done

    def pause(self) -> Event:
        """Stop after the step under way; caches stay. The event fires when the server stops."""
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
        """Take new weights after the step under way, or at once if the server is idle; sequences
        keep their caches. The event fires with the change. The caller accounts for the transfer's
        time."""
        done = self.cluster.event()
        self._swaps.append((version, done))
        if self._idle:
            self._swap()
        else:
            self._cut()
        return done

    def release_cache(self) -> None:
        """Give the memory of the cache back: all sequences wait to be computed again. Raises
        `InputError` unless the server is idle."""
        if not self._idle:
            raise InputError(self.name, "its cache is in use", "pause it first")
        self.batch.empty()

    def abort(self, request: Request) -> Answer:
        """End a request; its answer has the tokens so far. Its place is free after the step under
        way. Raises `InputError` for a request that is not under way."""
        sequence = self._known.get(id(request))
        if sequence is None:
            raise InputError(self.name, "no such request is under way", "submit it first")
        self.batch.abort(sequence, self._elapsed)
        if self._idle:
            self.batch.clear()
        else:
            self._cut()
        self._end(sequence)
        return sequence.answer

    # --- The clock --------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Begin to work after all submissions of this instant."""
        self._idle = False
        self._alarm(0.0)

    def _alarm(self, seconds: float) -> None:
        """End the leap under way in `seconds` seconds; this alarm replaces an earlier alarm."""
        self._epoch += 1
        epoch = self._epoch
        then(self.cluster.sleep(seconds), lambda _: self._ring(epoch))

    def _ring(self, epoch: int) -> None:
        if epoch == self._epoch:
            self._finish()
            self._next()

    @property
    def _elapsed(self) -> int:
        """The number of steps of the leap under way that have ended."""
        if not self._steps or self.batch.plan:
            return 0
        return min(self._pace.steps(self.cluster.now - self._began), self._steps)

    def _cut(self) -> None:
        """End the leap under way after its present step."""
        if self._steps <= 1 or self.batch.plan:
            return
        steps = self._elapsed
        steps += self._began + self._pace.seconds(steps) < self.cluster.now or steps == 0
        if steps < self._steps:
            self._steps = steps
            left = self._began + self._pace.seconds(steps) - self.cluster.now
            self._alarm(max(left, 0.0))

    def _finish(self) -> None:
        """End the steps under way, and hand out their finished answers."""
        steps, self._steps = self._steps, 0
        if not steps:
            return
        self.busy += self.cluster.now - self._began
        for sequence in self.batch.advance(steps, self.cluster.now):
            self._end(sequence)

    def _next(self) -> None:
        """Begin the next steps, or become idle."""
        batch = self.batch
        self._swap()
        if self._paused is not None:
            self._stand()
            if not self._paused.triggered:
                self._paused.succeed()
            return
        if not batch.make_room():
            batch.admit(self.cluster.now)
        if batch.size:
            self._began = self.cluster.now
            self._keep()
            self._alarm(self._begin())
        else:
            self._stand()

    def _begin(self) -> float:
        """Begin a step with prompts, or a leap, and return its seconds."""
        batch, cache, running = self.batch, self.batch.cache, len(self.batch.running)
        if batch.prompts:
            batch.plan, self._steps = list(batch.chunks()), 1
            chunks = [(tokens, sequence.computed) for sequence, tokens in batch.plan]
            return self.slowdown * self.speed.step(running, cache.read, chunks)
        self._steps = batch.leap()
        pace = self.speed.steps(running).pace(cache.read, cache.growing)
        self._pace = pace if self.slowdown == 1.0 else pace.slower(self.slowdown)
        return self._pace.seconds(self._steps)

    def _stand(self) -> None:
        self._idle = True
        self._keep()

    def _keep(self) -> None:
        if self.keep:
            cache = self.batch.cache
            state = Moment(self.cluster.now, self.batch.size, cache.used, cache.pages[0].read)
            self.moments.append(state)

    def _swap(self) -> None:
        """From now on, use the weights that were handed over last."""
        for version, done in self._swaps:
            self.batch.swap(version)
            done.succeed(version)
        self._swaps.clear()

    def _end(self, sequence: Sequence) -> None:
        """Hand out the answer of a sequence."""
        del self._known[id(sequence.request)]
        answer = sequence.answer
        answer.tokens, answer.ended = sequence.written, self.cluster.now
        answer.finished = sequence.written >= sequence.request.answer
        sequence.done.succeed(answer)
