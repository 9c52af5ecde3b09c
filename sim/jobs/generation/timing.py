"""Seconds of the kernels and collectives of a pass on one rank, one after the other."""

from collections.abc import Iterable, Mapping
from math import ceil
from typing import NamedTuple

from sim.collectives.schedule import GroupShape
from sim.config.dataclass import dataclass
from sim.engine.machine import Machine
from sim.hardware.device import Device
from sim.hardware.kernels.time import kernel_time
from sim.jobs.generation.engine import Engine
from sim.jobs.generation.layout import Layout
from sim.jobs.generation.passes import LOGITS
from sim.model.kernels import Attention, Gemm, Item, Kernel, Lag, Mark, MemoryBound, Overlap
from sim.program.operations import Collective
from sim.program.routed import Routed


class Parts(NamedTuple):
    """Device seconds of products, of collectives and of other kernels, and the host's seconds of
    launches."""

    products: float = 0.0
    communication: float = 0.0
    others: float = 0.0
    launches: float = 0.0

    @property
    def device(self) -> float:
        return self.products + self.communication + self.others

    def times(self, factor: float) -> "Parts":
        return Parts(*(factor * seconds for seconds in self))

    def plus(self, other: "Parts") -> "Parts":
        return Parts(*(a + b for a, b in zip(self, other, strict=True)))


@dataclass(frozen=True, eq=False)
class Timing:
    """The seconds of kernels and collectives of a server on the first GPUs of a machine."""

    machine: Machine
    device: Device
    engine: Engine
    layout: Layout

    def of(self, items: Iterable[tuple[Item, int]]) -> Parts:
        """Seconds of all items; each comes with the number of times that it runs."""
        total = Parts()
        for item, often in items:
            total = total.plus(self._parts(item).times(often))
        return total

    def _parts(self, item: Item) -> Parts:
        stack = self.engine.stack
        if isinstance(item, Mark):
            return Parts()
        if isinstance(item, Collective):
            return Parts(communication=self.collective(item), launches=stack.launch_collective)
        if isinstance(item, Overlap):
            computed = self.of((kernel, 1) for kernel in item.kernels)
            hidden = max(0.0, self.collective(item.collective) - computed.device)
            return computed.plus(Parts(communication=hidden, launches=stack.launch_collective))
        if isinstance(item, Lag):
            late = sum(map(self.kernel, item.fullest)) - sum(map(self.kernel, item.own))
            return Parts(communication=max(0.0, late))
        return self._kernel(item)

    def _kernel(self, kernel: Gemm | Attention | MemoryBound) -> Parts:
        seconds = self.kernel(kernel)
        stack = self.engine.stack
        launches = stack.launch_forward * kernel.launches
        launches += stack.operator_forward.get(kernel.operator, 0.0)
        if isinstance(kernel, Gemm):
            return Parts(products=seconds, launches=launches)
        return Parts(others=seconds, launches=launches)

    def kernel(self, kernel: Kernel) -> float:
        """Device seconds of a kernel."""
        return kernel_time(kernel, self.device, self.engine.stack.attention)

    def collective(self, call: Collective) -> float:
        """Seconds of a collective whose group shares its links with no other traffic. The ranks of
        tp and etp groups are neighbours; the ranks of ep groups are etp apart."""
        layout, axis = self.layout, "".join(call.axes)
        ranks = {"tp": layout.tp, "etp": layout.etp, "ep": layout.ep, "": 1}[axis]
        stride = layout.etp if axis == "ep" else 1
        if ranks == 1:
            return 0.0
        library = call.times * self.call(call.kind, call.bytes, ranks, stride, call.routed)
        direct = self._direct(call, ranks) if axis in ("tp", "etp") else None
        return library if direct is None else min(library, direct)

    def _direct(self, call: Collective, ranks: int) -> float | None:
        """Seconds of a collective with the engine's kernels; None if these do not run it."""
        topology = self.machine.topology
        switched = topology.node is not None and topology.node.switched
        far = not switched or ranks > topology.gpus_per_node
        if far or call.bytes > self.engine.direct or call.name == LOGITS:
            return None
        return direct_seconds(call.kind, call.bytes, ranks, self.device.generation)

    def call(
        self, kind: str, size: float, ranks: int, stride: int, routed: Routed | None = None
    ) -> float:
        """Seconds of a call of the collective library among ranks that are `stride` apart."""
        each = min(ranks, max(1, self.machine.topology.gpus_per_node // stride))
        shape = GroupShape(ranks=ranks, nodes=ceil(ranks / each), per_node=each)
        called = self.machine.call(kind, size, shape, routed)
        return called.duration(self.machine.call_cost(kind, size, shape, routed))


@dataclass(frozen=True, slots=True)
class DirectRates:
    """All-reduces whose kernels read other GPUs' memory. Engines use these for small tensors.

    In one shot, each GPU reads the whole tensors of all other GPUs and adds them up. In two shots,
    each GPU adds up a share of the tensor and then reads the other GPUs' sums (vLLM,
    csrc/custom_all_reduce.cuh: cross_device_reduce_1stage and _2stage). One shot saves a wait for
    other GPUs, two shots move fewer bytes. Both need a node whose switch lets GPUs read one
    another.

    A call without bytes takes `latency`, plus `each` for every GPU beyond two, plus `second` for
    the second shot (s). A GPU reads at the rate `one` in one shot, `two` in two (B/s).
    """

    latency: float
    each: float
    one: float
    second: float
    two: float

    def seconds(self, size: float, ranks: int) -> float:
        """Seconds of an all-reduce of `size` bytes, in one shot or two, whichever is faster.

        >>> rates = DirectRates(latency=4e-6, each=0.0, one=1e11, second=2e-6, two=1e11)
        >>> [round(rates.seconds(size, 4) * 1e6, 2) for size in (0, 1e5, 1e7)]
        [4.0, 7.0, 156.0]
        """
        begun = self.latency + self.each * (ranks - 2)
        one_shot = (ranks - 1) * size / self.one
        two_shot = self.second + 2 * (ranks - 1) / ranks * size / self.two
        return begun + min(one_shot, two_shot)


# Fitted on every second row of vLLM and SGLang in CUDA graphs up to 8 MiB in
# collectives/aiconfigurator_custom_allreduce.csv.gz; the median error on the other rows is 4, 3 and
# 8 %. On blackwell the fit finds no latency of a second shot: there two shots are never slower.
DIRECT: Mapping[str, DirectRates] = {
    "ampere": DirectRates(latency=5.2e-6, each=0.11e-6, one=184e9, second=8.0e-6, two=233e9),
    "hopper": DirectRates(latency=4.4e-6, each=0.06e-6, one=265e9, second=3.7e-6, two=293e9),
    "blackwell": DirectRates(latency=6.7e-6, each=0.12e-6, one=157e9, second=0.0, two=187e9),
}

_HALVES = ("all_gather", "reduce_scatter")  # the two halves of an all-reduce


def direct_seconds(kind: str, size: float, ranks: int, generation: str) -> float | None:
    """Seconds of a collective with the kernels of `DirectRates`; None if these cannot run it. An
    all-gather or a reduce-scatter counts as half of the all-reduce that engines run instead."""
    rates = DIRECT.get(generation)
    if rates is None or ranks > 8 or kind not in ("all_reduce", *_HALVES):
        return None
    seconds = rates.seconds(size, ranks)
    return seconds / 2 if kind in _HALVES else seconds
