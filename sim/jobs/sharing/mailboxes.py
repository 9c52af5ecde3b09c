"""Messages between peers; each is received once, by the worker to which it was sent."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import inf
from typing import Any

from sim.engine.live_cluster import Endpoint, Event, LiveCluster
from sim.jobs.sharing.barrier import Exchange

Address = tuple[int, int, Any]
"""Source, target, and a key that distinguishes a message from others between the two."""


class Mailboxes:
    """The messages of all workers, on their way or waiting to be received.

    All workers send about as much as they receive, so links carry acknowledgements beside messages.

    With `rendezvous` a message leaves when its receiver waits for it, like large messages of MPI
    and Gloo; otherwise it leaves when it is sent.
    """

    def __init__(
        self, cluster: LiveCluster, endpoints: Mapping[int, Endpoint], *, rendezvous: bool = False
    ) -> None:
        self.cluster, self.endpoints, self.rendezvous = cluster, endpoints, rendezvous
        self._arrivals: dict[Address, Exchange] = {}
        self.in_flight: dict[Address, Any] = {}
        self._expected: set[Address] = set()
        self._held: dict[Address, Callable[[], None]] = {}
        self._gone: set[int] = set()

    def send(self, source: int, targets: Iterable[int], key: Any, size: float, value: Any) -> None:
        """Send `size` bytes to each target."""
        present = [target for target in targets if target not in self._gone]
        self.in_flight.update({(source, target, key): value for target in present})
        if self.rendezvous:
            for target in present:
                launch = partial(self._launch, source, [target], key, size, value)
                self._launch_when_expected((source, target, key), launch)
            return
        one_by_one = [[target] for target in present]
        for together in one_by_one if self.cluster.each_message else [present]:
            self._launch(source, together, key, size, value)

    def _launch_when_expected(self, address: Address, launch: Callable[[], None]) -> None:
        if address in self._expected:
            launch()
        else:
            self._held[address] = launch

    def expect(self, sources: Iterable[int], target: int, key: Any) -> None:
        """Note that `target` is ready for messages of `sources`; with rendezvous, launch them."""
        for source in sources if self.rendezvous else ():
            address = (source, target, key)
            self._expected.add(address)
            if launch := self._held.pop(address, None):
                launch()

    def _launch(self, source: int, targets: list[int], key: Any, size: float, value: Any) -> None:
        shares = {self.endpoints[target]: 1.0 for target in targets}
        for target in targets:
            self._arrival((source, target, key)).complete = self.cluster.now
        sent = self.cluster.send(self.cluster.crossing(size), self.endpoints[source], shares)

        def deliver(_: Event) -> None:
            for target in targets:
                self._arrival((source, target, key)).succeed(value)

        assert sent.callbacks is not None
        sent.callbacks.append(deliver)

    def receive(self, source: int, target: int, key: Any) -> Exchange:
        """The event of a message's arrival; its value is None if the sender has left."""
        self.expect([source], target, key)
        arrival = self._arrival((source, target, key))
        if source in self._gone:
            self._give_up(arrival)
        return arrival

    def discard(self, source: int, target: int, key: Any) -> None:
        """Forget a message that has been read; before this call it counts as in flight."""
        address = (source, target, key)
        self._arrivals.pop(address, None)
        self.in_flight.pop(address, None)
        self._expected.discard(address)

    def leave(self, rank: int) -> None:
        self._gone.add(rank)
        for (source, _, _), arrival in list(self._arrivals.items()):
            if source == rank:
                self._give_up(arrival)

    def _give_up(self, arrival: Exchange) -> None:
        """Answer None for a message that was never sent; a message on its way still arrives."""
        if not arrival.triggered and arrival.complete == inf:
            arrival.succeed(None)

    def _arrival(self, address: Address) -> Exchange:
        return self._arrivals.setdefault(address, Exchange(self.cluster.env))
