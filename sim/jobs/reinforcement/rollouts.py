"""The generation side: answers are handed to servers, wait for tools, and get their rewards.

An answer goes to the server with the fewest answers, and stays there. Answers of a prompt go to a
server in groups of a size that lets all servers get equally many answers. Calls of tools divide an
answer into parts. After a call, the server reads the tool's result and goes on writing, with the
cache of all earlier tokens (prefix caching).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import gcd
from typing import cast

from sim.engine.events import then
from sim.engine.live_cluster import Event, LiveCluster
from sim.jobs.generation.batch import Answer, Request
from sim.jobs.generation.server import Server
from sim.jobs.reinforcement.samples import Group, Sample
from sim.jobs.reinforcement.scenario import Reinforcement
from sim.jobs.reinforcement.services import Drawn, Waiting
from sim.variability.laws import generator

_LEVELS = 1000  # the most moments that `levels` keeps


@dataclass(slots=True, kw_only=True)
class Counts:
    """Tokens of answers: `used` in updates, `lost` with answers that were filtered, dropped or
    begun anew."""

    used: int = 0
    lost: int = 0


class Rollouts:
    """The servers of a loop, and the groups that they write. `on_ready` is called with each group
    whose answers all have rewards. The first `shared` servers are on the trainer's GPUs."""

    def __init__(
        self,
        cluster: LiveCluster,
        loop: Reinforcement,
        servers: Sequence[Server],
        shared: int,
        reward: Callable[[Sample], Event],
        on_ready: Callable[[Group], None],
    ) -> None:
        self.cluster, self.loop, self.servers, self.shared = cluster, loop, servers, shared
        self.counts = Counts()
        self.running: dict[int, Group] = {}  # by number, in the order in which they began
        self._reward, self._on_ready = reward, on_ready
        self._load = [0] * len(servers)  # samples on each server
        self._together = _together(loop.prompts, loop.answers, len(servers))
        self._still: Event | None = None  # fires when no sample is on a server
        self._tools = _ToolCalls(cluster, loop) if loop.tools else None
        self._filter = generator(loop.seed, "filtered")
        self._begun = 0
        self._count = 0  # answers on servers now
        self._thinning, self._changes = 1, 0
        self.levels: list[tuple[float, int]] = []  # (moment, answers on servers from then on)

    # --- Groups -----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin the next group."""
        loop, number = self.loop, self._begun
        self._begun += 1
        prompt = int(loop.prompt.drawn(loop.seed, "prompts", number, 1)[0])
        lengths = loop.answer.drawn(loop.seed, "answers", number, loop.answers).astype(int).tolist()
        filtered = bool(loop.filtered) and float(self._filter.random()) < loop.filtered
        group = Group(number, prompt, self.cluster.now, filtered, left=loop.answers)
        self.running[number] = group
        for place, length in enumerate(lengths):
            parts, results = self._tools.divided(length) if self._tools else ((length,), ())
            sample = Sample(group, place, parts, results, begun=self.cluster.now)
            group.samples.append(sample)
            if place % self._together == 0:
                server = self._choose()
            self._place(sample, server)
            self._submit(sample)

    def drop(self, group: Group) -> None:
        """End the answers of a group that is not needed any more."""
        del self.running[group.number]
        for sample in group.samples:
            self._interrupt(sample)
            sample.gone = True
            self.counts.lost += sample.done

    def restart(self) -> None:
        """Let all answers that are being written begin anew."""
        for sample in self._written():
            self._interrupt(sample)
            self.counts.lost += sample.forget()
            self._place(sample, self._choose())
            self._submit(sample)

    def still(self) -> Event:
        """An event that fires when no answer is on a server."""
        event = self.cluster.event()
        if not self._count:
            event.succeed()
        else:
            self._still = event
        return event

    # --- Samples ----------------------------------------------------------------------------------

    def _written(self) -> Iterator[Sample]:
        """Yield the samples that a server is writing."""
        for group in list(self.running.values()):
            yield from (sample for sample in group.samples if sample.request is not None)

    def _choose(self) -> int:
        """The number of the first server with the fewest samples."""
        return self._load.index(min(self._load))

    def _place(self, sample: Sample, server: int) -> None:
        sample.server = server
        self._load[server] += 1
        self._note(1)

    def _submit(self, sample: Sample) -> None:
        """Let the server write the sample's next part, after the tokens written and read so far."""
        group, before = sample.group, sample.done + sample.read
        request = Request(
            prompt=group.prompt,
            answer=sample.parts[sample.part] - sample.ahead,
            prefix=group.number,
            continues=before,
        )
        sample.request = request
        done = self.servers[sample.server].submit(request)
        then(done, lambda event: self._on_answer(sample, event))

    def _on_answer(self, sample: Sample, event: Event) -> None:
        answer = cast(Answer, event.value)
        if answer.request is not sample.request:
            return  # interrupted
        sample.request = None
        sample.count(answer.versions)
        if sample.part < len(sample.results):
            assert self._tools is not None, "only tools divide answers"
            done = self._tools.call()
            then(done, lambda _: self._go_on(sample))
            return
        self._leave(sample)
        sample.written = self.cluster.now
        then(self._reward(sample), lambda _: self._rewarded(sample))

    def _go_on(self, sample: Sample) -> None:
        """Go on with a sample whose tool has answered."""
        if sample.gone:
            return
        sample.read += sample.results[sample.part]
        sample.part, sample.ahead = sample.part + 1, 0
        self._submit(sample)

    def _leave(self, sample: Sample) -> None:
        self._load[sample.server] -= 1
        sample.server = -1
        self._note(-1)
        if self._still is not None and not self._count:
            still, self._still = self._still, None
            still.succeed()

    def _note(self, more: int) -> None:
        """Note the number of answers on servers; in a long run only every second, fourth ... change
        is noted."""
        self._count += more
        self._changes += 1
        if self.levels and self.levels[-1][0] == self.cluster.now:
            self.levels[-1] = self.cluster.now, self._count
        elif self._changes % self._thinning == 0 or self._count in (0, more):
            self.levels.append((self.cluster.now, self._count))
            if len(self.levels) > _LEVELS:
                self.levels = [
                    level for n, level in enumerate(self.levels) if n % 2 == 0 or not level[1]
                ]
                self._thinning *= 2

    def _interrupt(self, sample: Sample) -> None:
        """Take an answer from its server; the sample keeps its tokens."""
        if sample.request is not None:
            request, sample.request = sample.request, None
            sample.count(self.servers[sample.server].abort(request).versions)
        if sample.server >= 0:
            self._leave(sample)

    def _rewarded(self, sample: Sample) -> None:
        group = sample.group
        if sample.gone:
            return
        group.left -= 1
        group.written = max(group.written, sample.written)
        if not group.left:
            group.ready = self.cluster.now
            del self.running[group.number]
            self._on_ready(group)


def _together(prompts: int, answers: int, servers: int) -> int:
    """How many answers of a prompt go to a server together, so that all servers get equally many.

    >>> _together(64, 16, 16), _together(100, 16, 64), _together(32, 16, 64)
    (16, 1, 8)
    """
    each, more = divmod(prompts * answers, servers)
    return 1 if more else gcd(each, answers)


class _ToolCalls:
    """Draws the calls of tools, their results and their seconds from their laws."""

    def __init__(self, cluster: LiveCluster, loop: Reinforcement) -> None:
        tools = loop.tools
        assert tools is not None
        self._calls = Drawn(tools.calls, generator(loop.seed, "calls"))
        self._tokens = Drawn(tools.tokens, generator(loop.seed, "results"))
        self._seconds = Drawn(tools.service.of, generator(loop.seed, "tools"))
        self._waiting = Waiting(cluster, tools.service.workers)

    def divided(self, length: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Tokens of the parts of an answer, and tokens of the results between the parts."""
        calls = min(round(self._calls.next()), length - 1)
        each, more = divmod(length, calls + 1)
        parts = tuple(each + (place < more) for place in range(calls + 1))
        return parts, tuple(round(self._tokens.next()) for _ in range(calls))

    def call(self) -> Event:
        """An event that fires when a tool has answered."""
        return self._waiting.serve(self._seconds.next())
