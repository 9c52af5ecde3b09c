"""Costs of a role's work: the duration, and the causes of the seconds on the device.

Kernels between two points at which roles interact are one step on the clock. A collective inside
one role is part of that step if nothing else uses its links meanwhile (tensor parallelism on
NVSwitch). Durations compose exactly (`sim.program.durations`).
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

MOST = 0.5  # the share that a memory-bound kernel loses to another that needs all bandwidth


def losses(device: Device, *, ctas: int, moved: float) -> Losses:
    """The losses of a device's kernels beside a collective's kernel that holds `ctas` SMs and moves
    `moved` bytes a second through memory. Losses that the device's profile measured beside an
    all-reduce take precedence. Memory-bound kernels lose the collective's share of SMs or of
    bandwidth, whichever is larger: an SM has a limited number of bytes in flight. Kernels whose
    grid fills all SMs once need a second wave, as long as the first: TransformerEngine's backward
    norm takes 98 us alone and 183 us beside DeepEP on H800 (traces/deepseek).

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

    After the host has waited for the device, the device waits for the next launches; these seconds
    belong to the host.
    """

    duration: Duration
    parts: Parts

    def then(self, behind: "Cost") -> "Cost":
        """The cost of this work followed by the work `behind` it."""
        parts = dict(self.parts)
        for cause, seconds in behind.parts.items():
            parts[cause] = parts.get(cause, 0.0) + seconds
        device = self.duration.device + behind.duration.device
        return Cost(self.duration._replace(device=device), parts).longer(
            self.duration.then(behind.duration), HOST
        )

    def repeated(self, times: int) -> "Cost":
        """The cost of this work `times` times in a row."""
        if times == 1:
            return self
        parts = {cause: times * seconds for cause, seconds in self.parts.items()}
        device = times * self.duration.device
        return Cost(self.duration._replace(device=device), parts).longer(
            self.duration.repeated(times), HOST
        )

    def longer(self, duration: Duration, cause: Cause) -> "Cost":
        """The cost of the same work with a longer duration; `cause` has the further seconds."""
        more = duration.device - self.duration.device
        if more <= 0.0:
            return Cost(duration, self.parts)
        return Cost(duration, {**self.parts, cause: self.parts.get(cause, 0.0) + more})


NO_COST = Cost(Duration(), {})


class Silent:
    """A cache for work without collectives: its cost by slowdown, and its kernels."""

    def __init__(self) -> None:
        # Keys are ids of objects. The values keep the objects alive, so no id is used twice.
        self.costs: dict[tuple[float, int], tuple[Work, Cost]] = {}
        self.kernels: dict[int, tuple[Work, Kernels]] = {}


class Links(Protocol):
    """Questions about the network: the seconds of a collective alone on its links, its seconds if
    all groups along its mesh axes call `at_once`, and the losses of kernels beside it."""

    def seconds(self, call: Collective) -> float: ...

    def at_once(self, call: Collective) -> float: ...

    def losses(self, call: Collective) -> Losses: ...


@dataclass(frozen=True, slots=True)
class _AtOnce:
    """Links on which all groups along the mesh axes of a call make it at the same time."""

    links: Links

    def seconds(self, call: Collective) -> float:
        return self.links.at_once(call)

    at_once = seconds

    def losses(self, call: Collective) -> Losses:
        return self.links.losses(call)


class Costs:
    """The costs of a role's work; the cost of equal work is computed once. Work without collectives
    costs the same for all roles with equal slowdown, which may share the cache `known`."""

    def __init__(self, links: Links, *, slowdown: float = 1.0, known: Silent | None = None) -> None:
        self.links, self.slowdown = links, slowdown
        self.silent = Silent() if known is None else known
        # Keys are ids of objects. The values keep the objects alive, so no id is used twice.
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
        """The cost of a segment's kernels without the collectives beside them."""
        duration = segment.duration.slowed(self.slowdown)
        return Cost(duration, {segment.cause: duration.device})

    def disturbed(self, segment: Segment) -> Cost:
        """The cost of a segment's kernels, slowed by the collectives beside them."""
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
        """The seconds that work loses to the collectives beside it on other streams.

        Work and collectives are taken to last as long as if all ranks did the same at once. So the
        loss does not depend on which ranks are folded.
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
        """The costs if all groups along the mesh axes of a call make it at the same time."""
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
        """The share of its pace that work loses beside a call. `kernels` has the seconds of its
        kernels by class, `device` its seconds in all."""
        if device <= 0.0:
            return 0.0
        losses = self.links.losses(call)
        return (
            sum(losses[kernel_class] * seconds for kernel_class, seconds in kernels.items())
            / device
        )

    def inside(self, work: Work) -> Cost:
        """The cost of work without its losses to the collectives beside it."""
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
