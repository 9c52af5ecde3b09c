"""Seconds of the kernels and collectives of a pass on one rank, one after the other."""

from collections.abc import Iterable
from math import ceil
from typing import NamedTuple

from sim.collectives.schedule import GroupShape
from sim.config.dataclass import dataclass
from sim.engine.machine import Machine
from sim.hardware.device import Device
from sim.hardware.kernels.time import kernel_time
from sim.jobs.generation.all_reduce import direct_seconds
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
            own = self.of((kernel, 1) for kernel in item.kernels)
            hidden = max(0.0, self.collective(item.collective) - own.device)
            return own.plus(Parts(communication=hidden, launches=stack.launch_collective))
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
        """Seconds of a collective with the engine's own kernels; None where they do not run it."""
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
