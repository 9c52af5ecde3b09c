"""Costs of work for a role: its duration, and the causes of its seconds on the device.

Kernels between two points of interaction are one step on the clock, and a collective inside one
role, on links that nothing else uses meanwhile (tensor parallelism on NVSwitch), is part of that
step: composition is exact (`sim.program.durations`).
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple, Protocol

from sim.config.dataclass import dataclass
from sim.hardware.device import Device
from sim.model.kernels import ONE_WAVE
from sim.program.causes import HOST, Cause
from sim.program.durations import Duration
from sim.program.memory import added, runs
from sim.program.operations import Collective, Segment, Work

Losses = Mapping[str, float]
"""Shares of their pace that kernels lose, by class."""

MOST = 0.5  # what a memory-bound kernel loses to one that wants all of the bandwidth too


def losses(device: Device, *, ctas: int, moved: float) -> Losses:
    """The losses of a device's kernels beside one that holds so many SMs and moves so many bytes a
    second through memory; as a profile has measured them beside an all-reduce, where one has.
    Memory-bound kernels lose the larger share of both: an SM has so many bytes on their way. Those
    whose grid fills the SMs once wait for a second wave, which takes as long as the first: of 98 us
    TransformerEngine's backward norm takes 183 beside DeepEP on H800 (traces/deepseek).

    >>> from sim.hardware.device import load
    >>> losses(load("a100-80gb-sxm"), ctas=27, moved=0.0)["gemm"]
    0.25
    """
    held = max(ctas / device.sms, device.interference) if ctas else 0.0
    bandwidth = moved / (device.memory_bandwidth * device.stream.bandwidth)
    shared = min(max(bandwidth, ctas / device.sms), MOST)
    waves = max(shared, 0.5) if ctas else shared
    found_losses = {
        "gemm": held, "attention": held, "timed": held, "stream": shared, ONE_WAVE: waves,
    }  # fmt: skip
    return found_losses | _measured(device) if ctas else found_losses


def _measured(device: Device) -> dict[str, float]:
    found = device.measured.environment.overlaps if device.measured else ()
    slow = {overlap.kernel: overlap.slowdown for overlap in found if overlap.beside == "all_reduce"}
    return {kernel: 1.0 - 1.0 / max(factor, 1.0) for kernel, factor in slow.items()}


Parts = Mapping[Cause, float]
Kernels = Mapping[str, float]


class Cost(NamedTuple):
    """A duration, and seconds by cause that add up to its device time.

    Where the host waits for the device, this does for the launches behind, which is the host's.
    """

    duration: Duration
    parts: Parts

    def then(self, behind: "Cost") -> "Cost":
        """This work and more behind it."""
        parts = dict(self.parts)
        for cause, seconds in behind.parts.items():
            parts[cause] = parts.get(cause, 0.0) + seconds
        device = self.duration.device + behind.duration.device
        return Cost(self.duration._replace(device=device), parts).longer(
            self.duration.then(behind.duration), HOST
        )

    def repeated(self, times: int) -> "Cost":
        """So many in a row."""
        if times == 1:
            return self
        parts = {cause: times * seconds for cause, seconds in self.parts.items()}
        device = times * self.duration.device
        return Cost(self.duration._replace(device=device), parts).longer(
            self.duration.repeated(times), HOST
        )

    def longer(self, duration: Duration, cause: Cause) -> "Cost":
        """The same work lasting longer on the device, for this cause."""
        more = duration.device - self.duration.device
        if more <= 0.0:
            return Cost(duration, self.parts)
        return Cost(duration, {**self.parts, cause: self.parts.get(cause, 0.0) + more})


NO_COST = Cost(Duration(), {})


class Silent:
    """What is known of work that asks nothing of the links: its cost by slowdown, its kernels."""

    def __init__(self) -> None:
        # Keys are identities: what they stand for is kept, and so they stay its own.
        self.costs: dict[tuple[float, int], tuple[Work, Cost]] = {}
        self.kernels: dict[int, tuple[Work, Kernels]] = {}


class Links(Protocol):
    """What is asked of the network: how long a collective takes with its links to itself, or where
    every group of its scope calls at once, and what kernels beside it lose."""

    def seconds(self, call: Collective) -> float: ...

    def at_once(self, call: Collective) -> float: ...

    def losses(self, call: Collective) -> Losses: ...


@dataclass(frozen=True, slots=True)
class _AtOnce:
    """Links on which every group of a scope calls at once."""

    links: Links

    def seconds(self, call: Collective) -> float:
        return self.links.at_once(call)

    at_once = seconds

    def losses(self, call: Collective) -> Losses:
        return self.links.losses(call)


class Costs:
    """The costs of a role's work; equal work is worked out once. Work that asks nothing of the
    links costs roles of one slowdown the same: they may share what is `known` of it."""

    def __init__(self, links: Links, *, slowdown: float = 1.0, known: Silent | None = None) -> None:
        self.links, self.slowdown = links, slowdown
        self.silent = Silent() if known is None else known
        # Keys are identities: what they stand for is kept, and so they stay its own.
        self._known: dict[int, tuple[Work, Cost]] = {}
        self._disturbed: dict[int, tuple[Segment, Cost]] = {}
        self._lost: dict[int, tuple[Work, Cost]] = {}

    def of(self, item: Work | Segment | Collective) -> Cost:
        """The cost of work, of one of its segments, or of a collective by itself."""
        if isinstance(item, Work):
            return self._of_work(item)
        if isinstance(item, Collective):
            seconds = self.links.seconds(item)
            return Cost(Duration(seconds, 0.0, seconds), {item.cause: seconds})
        cost = self.of_kernels(item)
        for call in item.beside:
            loss = self._loss(call, dict(item.kernels), item.device)
            slow = cost.duration.disturbed(self.links.at_once(call), loss)
            both = slow.beside(self.links.seconds(call))
            cost = cost.longer(both, call.cause)
        return cost

    def of_kernels(self, segment: Segment) -> Cost:
        """A segment's kernels without what runs beside them."""
        duration = segment.duration.slowed(self.slowdown)
        return Cost(duration, {segment.cause: duration.device})

    def disturbed(self, segment: Segment) -> Cost:
        """A segment's kernels, slowed by what runs beside them."""
        known = self._disturbed.get(id(segment))
        if known is None:
            known = self._disturbed[id(segment)] = segment, self._disturbed_of(segment)
        return known[1]

    def _disturbed_of(self, segment: Segment) -> Cost:
        cost = self.of_kernels(segment)
        for call in segment.beside:
            loss = self._loss(call, dict(segment.kernels), segment.device)
            cost = cost.longer(cost.duration.disturbed(self.links.at_once(call), loss), call.cause)
        return cost

    def lost(self, work: Work) -> Cost:
        """Seconds that work loses to the collectives beside it on other streams.

        Both last as long as where all ranks do the same at once, so that it does not depend on
        which of them are folded.
        """
        if not work.beside:
            return NO_COST
        known = self._lost.get(id(work))
        if known is None:
            known = self._lost[id(work)] = work, self._lost_of(work)
        return known[1]

    def _lost_of(self, work: Work) -> Cost:
        lost = NO_COST
        duration = self._at_once.inside(work).duration
        for call, stretch in work.beside:
            now = duration.then(lost.duration)
            loss = self._loss(call, self.kernels(work), duration.device / self.slowdown)
            seconds = self.links.at_once(call)
            if stretch is not None:
                held = sum(map(self.links.at_once, stretch.calls))
                whole = stretch.kernels * self.slowdown + held
                seconds *= stretch.times * duration.device / whole
            slow = now.disturbed(seconds, loss)
            more = slow.device - now.device
            lost = lost.then(Cost(Duration(more, 0.0, more), {call.cause: more}))
        return lost

    @cached_property
    def _at_once(self) -> "Costs":
        """Costs where every group of a scope calls at once."""
        return Costs(_AtOnce(self.links), slowdown=self.slowdown, known=self.silent)

    def kernels(self, work: Work) -> Kernels:
        """Device seconds of work by class of kernel."""
        known = self.silent.kernels.get(id(work))
        if known is None:
            parts = ((self._kernels_of(item), times) for item, times in runs(work.items))
            causes = added(*({k: times * t for k, t in part.items()} for part, times in parts))
            known = self.silent.kernels[id(work)] = work, causes
        return known[1]

    def _kernels_of(self, item: Work | Segment | Collective) -> Kernels:
        if isinstance(item, Work):
            return self.kernels(item)
        return {} if isinstance(item, Collective) else dict(item.kernels)

    def _loss(self, call: Collective, kernels: Kernels, device: float) -> float:
        """The share of the pace of so many seconds that these of its kernels lose."""
        if device <= 0.0:
            return 0.0
        losses = self.links.losses(call)
        return (
            sum(losses[kernel_class] * seconds for kernel_class, seconds in kernels.items())
            / device
        )

    def inside(self, work: Work) -> Cost:
        """The cost of work without what it loses to the collectives beside it."""
        key = id(work)
        known = self._known.get(key) or self.silent.costs.get((self.slowdown, key))
        if known is None:
            whole = NO_COST
            for item, times in runs(work.items):
                whole = whole.then(self.of(item).repeated(times))
            known = self._known[key] = work, whole
            if next(replace(work, beside=()).every_call(), None) is None:
                self.silent.costs[self.slowdown, key] = known
        return known[1]

    def _of_work(self, work: Work) -> Cost:
        return self.inside(work).then(self.lost(work)) if work.beside else self.inside(work)
