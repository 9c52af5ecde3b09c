"""Where workers come together: rounds that wait for everyone, clocks, and letters between peers."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sim.engine.processes import Event, Place, Process, World

Act = Callable[[Any, dict[int, Any]], Process]


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
    """Letters from worker to worker; each is read once, by the one it was written to."""

    def __init__(self, world: World, places: Mapping[int, Place]) -> None:
        self.world, self.places = world, places
        self._letters: dict[tuple[int, int, Any], Event] = {}
        self.in_flight: dict[tuple[int, int, Any], Any] = {}
        self._gone: set[int] = set()

    def send(self, source: int, targets: Iterable[int], key: Any, size: float, value: Any) -> Event:
        """Send `size` bytes to each target; the event fires when the last has arrived."""
        there = [target for target in targets if target not in self._gone]
        mine = self.places[source]
        if self.world.each_message:
            parts = [self._one(mine, [to], source, key, size, value) for to in there]
            return self.world.all_of(parts)
        return self._one(mine, there, source, key, size, value)

    def _one(
        self, place: Place, targets: list[int], source: int, key: Any, size: float, value: Any
    ) -> Event:
        event = self.world.send(size, place, {self.places[to]: 1.0 for to in targets})
        self.in_flight.update({(source, to, key): value for to in targets})

        def deliver(_: Event) -> None:
            for to in targets:
                self._letter(source, to, key).succeed(value)

        assert event.callbacks is not None
        event.callbacks.append(deliver)
        return event

    def read(self, source: int, target: int, key: Any) -> Event:
        """The letter, now or when it arrives; it brings None where its writer has gone."""
        event = self._letter(source, target, key)
        if source in self._gone and not event.triggered:
            event.succeed(None)
        return event

    def done(self, source: int, target: int, key: Any) -> None:
        """The letter has been read and can be thrown away; until then it is in flight."""
        self._letters.pop((source, target, key), None)
        self.in_flight.pop((source, target, key), None)

    def leave(self, rank: int) -> None:
        self._gone.add(rank)
        for (source, _, _), event in list(self._letters.items()):
            if source == rank and not event.triggered:
                event.succeed(None)

    def _letter(self, source: int, target: int, key: Any) -> Event:
        return self._letters.setdefault((source, target, key), self.world.event())
