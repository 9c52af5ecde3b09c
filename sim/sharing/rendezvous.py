"""Where workers come together: rounds that wait for everyone, clocks, and letters between peers."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from sim.engine.processes import Event, Place, Process, World

Act = Callable[[Any, dict[int, Any]], Process]
Address = tuple[int, int, Any]


class Meeting:
    """Rounds in which every member brings a value; `act(key, values)` then gives the answer.

    Rounds run one after the other, as collectives on one stream do. A member that leaves is not
    waited for any more.
    """

    def __init__(self, world: World, members: Iterable[int], act: Act) -> None:
        self.world, self.members, self._act = world, set(members), act
        self._open: dict[Any, dict[int, Any]] = {}
        self._answers: dict[Any, Event] = {}
        self._last: Event | None = None

    def join(self, rank: int, key: Any, value: Any) -> Event:
        """Bring a value to a round; the event brings the answer and when all were there."""
        values = self._open.setdefault(key, {})
        values[rank] = value
        answer = self._answers.setdefault(key, self.world.event())
        self._begin_if_complete(key)
        return answer

    def leave(self, rank: int) -> None:
        self.members.discard(rank)
        for key in list(self._open):
            self._begin_if_complete(key)

    def _begin_if_complete(self, key: Any) -> None:
        if self.members and self.members <= self._open[key].keys():
            self._last = self.world.start(self._round(key, self._last))

    def _round(self, key: Any, before: Event | None) -> Process:
        values, answer = self._open.pop(key), self._answers.pop(key)
        together = self.world.now
        if before is not None and not before.processed:
            yield before
        result = yield from self._act(key, values)
        answer.succeed((result, together))


class Clocks:
    """How many steps each worker has done; the slowest holds back the others."""

    def __init__(self, world: World, members: Iterable[int]) -> None:
        self.world = world
        self._at = dict.fromkeys(members, 0)
        self._count = Counter(self._at.values())
        self.slowest = 0
        self._waiting: dict[int, Event] = {}

    def tick(self, rank: int) -> None:
        """A worker has done one more step."""
        self._count[self._at[rank]] -= 1
        self._at[rank] += 1
        self._count[self._at[rank]] += 1
        self._advance()

    def leave(self, rank: int) -> None:
        self._count[self._at.pop(rank)] -= 1
        self._advance()

    def reach(self, steps: int) -> Event:
        """Fires when even the slowest has done so many steps."""
        if self.slowest >= steps:
            event = self.world.event()
            event.succeed()
            return event
        return self._waiting.setdefault(steps, self.world.event())

    def _advance(self) -> None:
        while self._at and not self._count[self.slowest]:
            self.slowest += 1
        for steps in [steps for steps in self._waiting if steps <= self.slowest]:
            self._waiting.pop(steps).succeed()


class Post:
    """Letters from worker to worker; each is read once, by the one it was written to.

    All write about as much as they read, so links carry acknowledgements beside letters.

    With `rendezvous` a letter leaves when its reader waits for it, as large messages of MPI and
    Gloo do; otherwise when it is written.
    """

    def __init__(
        self, world: World, places: Mapping[int, Place], *, rendezvous: bool = False
    ) -> None:
        self.world, self.places, self.rendezvous = world, places, rendezvous
        self._letters: dict[Address, Event] = {}
        self.in_flight: dict[Address, Any] = {}
        self._expected: set[Address] = set()
        self._held: dict[Address, Callable[[], None]] = {}
        self._gone: set[int] = set()

    def send(self, source: int, targets: Iterable[int], key: Any, size: float, value: Any) -> None:
        """Send `size` bytes to each target."""
        there = [target for target in targets if target not in self._gone]
        self.in_flight.update({(source, to, key): value for to in there})
        if self.rendezvous:
            for to in there:
                address = (source, to, key)
                self._when_expected(address, partial(self._launch, source, [to], key, size, value))
            return
        for some in [[to] for to in there] if self.world.each_message else [there]:
            self._launch(source, some, key, size, value)

    def _when_expected(self, address: Address, launch: Callable[[], None]) -> None:
        if address in self._expected:
            launch()
        else:
            self._held[address] = launch

    def expect(self, sources: Iterable[int], target: int, key: Any) -> None:
        """A reader is ready for its letters."""
        for source in sources if self.rendezvous else ():
            address = (source, target, key)
            self._expected.add(address)
            if launch := self._held.pop(address, None):
                launch()

    def _launch(self, source: int, targets: list[int], key: Any, size: float, value: Any) -> None:
        places = {self.places[to]: 1.0 for to in targets}
        event = self.world.send(self.world.crossing(size), self.places[source], places)

        def deliver(_: Event) -> None:
            for to in targets:
                self._letter(source, to, key).succeed(value)

        assert event.callbacks is not None
        event.callbacks.append(deliver)

    def read(self, source: int, target: int, key: Any) -> Event:
        """The letter, now or when it arrives; it brings None where its writer has gone."""
        self.expect([source], target, key)
        event = self._letter(source, target, key)
        if source in self._gone and not event.triggered:
            event.succeed(None)
        return event

    def done(self, source: int, target: int, key: Any) -> None:
        """The letter has been read and can be thrown away; until then it is in flight."""
        self._letters.pop((source, target, key), None)
        self.in_flight.pop((source, target, key), None)
        self._expected.discard((source, target, key))

    def leave(self, rank: int) -> None:
        self._gone.add(rank)
        for (source, _, _), event in list(self._letters.items()):
            if source == rank and not event.triggered:
                event.succeed(None)

    def _letter(self, source: int, target: int, key: Any) -> Event:
        return self._letters.setdefault((source, target, key), self.world.event())
