"""What could be otherwise: ranks of a trace with something changed."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal

from sim.config.errors import InputError
from sim.engine.machine import Machine
from sim.jobs.traces.activity import Kernel, Rank, Route
from sim.jobs.traces.network import MESSAGES, Network

Overlap = Literal["as-is", "none", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """`kernels` are (part of a name, factor on its seconds), `host` a factor on the host's seconds.

    `machine` takes the place of the network that was measured (`network`). `overlap`
    "none" runs kernels of all streams one after the other as they were launched, "full" lets no
    kernel, and no host, wait for a collective.
    """

    kernels: tuple[tuple[str, float], ...] = ()
    host: float = 1.0
    machine: Machine | None = None
    overlap: Overlap = "as-is"

    def of(self, ranks: Sequence[Rank]) -> list[Rank]:
        """The ranks with all that was changed. Raises `InputError` for kernels that there are not,
        and collectives that a trace does not describe."""
        for part, _ in self.kernels:
            if not any(part in kernel.name for rank in ranks for kernel in rank.kernels):
                names = sorted({kernel.name.split("(")[0] for kernel in ranks[0].kernels})[:3]
                remedy = f"there are {', '.join(names) or 'none'}"
                raise InputError("--kernels", f"no kernel is called {part!r}", remedy)
        return [self._rank(rank) for rank in ranks]

    def _rank(self, rank: Rank) -> Rank:
        kernels: Iterable[Kernel] = rank.kernels
        if self.machine is not None:
            calls = (kernel.collective for kernel in rank.kernels if kernel.collective)
            pipeline = any(call.kind == MESSAGES for call in calls)
            network = Network(self.machine, rank.world, pipeline)
            kernels = (_elsewhere(kernel, network) for kernel in kernels)
        kernels = _OVERLAP[self.overlap](tuple(self._faster(kernel) for kernel in kernels))
        host = (replace(item, seconds=item.seconds * self.host) for item in rank.host)
        if self.overlap == "full":
            host = (replace(item, awaited=_computed(item.awaited, kernels)) for item in host)
        return replace(rank, kernels=kernels, host=tuple(host))

    def _faster(self, kernel: Kernel) -> Kernel:
        factors = [factor for part, factor in self.kernels if part in kernel.name]
        *_, factor = accumulate(factors, lambda a, b: a * b, initial=1.0)
        own = replace(kernel, seconds=kernel.seconds * factor)
        if (call := kernel.collective) is None or (route := call.route) is None:
            return own
        links = ((link, factor * size, rate) for link, size, rate in route.links)
        faster = Route(factor * route.latency, tuple(links))
        return replace(own, collective=replace(call, route=faster))


def _elsewhere(kernel: Kernel, network: Network) -> Kernel:
    """A collective as the library carries it out on another network."""
    call = kernel.collective
    if call is None:
        return kernel
    if lacks := call.lacks if call.bytes else "size":
        what = f"{kernel.name.split('(')[0]} has no {lacks} in the trace"
        remedy = "record it with record_shapes=True, and torch 2.1 or later"
        raise InputError("--topology", what, remedy)
    carried = network.carried(call)
    return replace(kernel, seconds=network.seconds(carried), tail=0.0, collective=carried)


def _as_is(kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
    return kernels


def _in_a_row(kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
    """All on one stream, in the order in which they were launched."""
    return tuple(replace(kernel, stream="stream", after=()) for kernel in kernels)


def _beside(kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
    """No kernel waits for a collective; these still wait for what they send."""
    return tuple(
        kernel if kernel.collective else replace(kernel, after=_computed(kernel.after, kernels))
        for kernel in kernels
    )


def _computed(numbers: Iterable[int], kernels: Sequence[Kernel]) -> tuple[int, ...]:
    """Those of some kernels that are no collectives."""
    return tuple(number for number in numbers if kernels[number].collective is None)


_OVERLAP: dict[Overlap, Callable[[tuple[Kernel, ...]], tuple[Kernel, ...]]] = {
    "as-is": _as_is, "none": _in_a_row, "full": _beside,
}  # fmt: skip
