"""How long calls and passes take with their links to themselves, for layouts by the thousand.

The topology and the backend say it, as they do for the clock; nothing is played.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from sim.collectives.group import GroupShape
from sim.engine.compose import Span, span_of
from sim.engine.machine import Machine
from sim.parallel.balance import Chunk
from sim.parallel.mesh import Mesh
from sim.parallel.plan import Plan
from sim.parallel.work import Items, Job, backward, forward, optimizer
from sim.program.operations import Collective

LAYER, EMBEDDING, HEAD = (
    Chunk(layers=1),
    Chunk(layers=0, embedding=True),
    Chunk(layers=0, head=True),
)


@dataclass(slots=True)
class Spans:
    """What many plans have in common, composed once.

    Passes through one layer, the embedding and the head depend on the microbatch, tensor
    parallelism and recomputation; the optimizer's step on what a rank updates.
    """

    _known: dict[tuple[object, ...], dict[tuple[str, Chunk], Span]] = field(default_factory=dict)
    _updates: dict[tuple[float, ...], float] = field(default_factory=dict)

    def of(self, job: Job, machine: Machine) -> dict[tuple[str, Chunk], Span]:
        """By phase and piece."""
        plan = job.plan
        key = (plan.microbatch, plan.tp, plan.sequence_parallel, plan.recompute, plan.pp > 1)
        if key not in self._known:
            self._known[key] = {
                (phase, piece): span_over(build(job, piece).items, job, machine)
                for phase, build in (("F", forward), ("B", backward))
                for piece in (LAYER, EMBEDDING, HEAD)
            }
        return self._known[key]

    def update(self, job: Job, machine: Machine, parameters: float, layers: int) -> float:
        """Seconds of the optimizer's step on a rank with so many parameters and layers."""
        key = (parameters, layers, job.plan.copies if job.plan.zero else 1)
        if key not in self._updates:
            span = span_over(optimizer(job, parameters, layers), job, machine)
            self._updates[key] = max(span.device, span.lead)
        return self._updates[key]


def span_over(items: Items, job: Job, machine: Machine) -> Span:
    """Segments and collectives in a row as one span, collectives alone on their links."""
    whole = Span()
    for item in items:
        if isinstance(item, Collective):
            seconds = alone(item, job.plan, machine)
            whole = whole.then(Span(seconds, 0.0, seconds))
            continue
        span = span_of(item, 1.0)
        for call in item.beside:
            lost = machine.topology.device.interference
            span = span.beside(call.cause, alone(call, job.plan, machine), lost)
        whole = whole.then(span)
    return whole


def alone(call: Collective, plan: Plan, machine: Machine) -> float:
    """Seconds of a collective when nothing else uses its links."""
    shape = group_shape(call.axes, plan, machine.topology.gpus_per_node)
    return duration(machine, call.kind, call.bytes, shape)


def duration(machine: Machine, kind: str, bytes: float, shape: GroupShape) -> float:
    """Seconds of a call with its links to itself, NICs shared evenly by a node's devices."""
    if shape.ranks == 1:
        return 0.0
    topology = machine.topology
    cost = machine.call_cost(kind, bytes, shape)
    port = nic = 0.0
    if topology.node is not None:
        interconnect = machine.interconnect
        port = cost.port / (interconnect.port_bandwidth * topology.node.efficiency)
    if topology.network is not None and shape.nodes > 1:
        network, slots = topology.network, topology.gpus_per_node
        share = network.bandwidth * network.efficiency * max(network.nics, 1) / slots
        nic = cost.nic / (share * shape.per_node)
    return cost.latency + max(port, nic)


def group_shape(axes: Sequence[str], plan: Plan, slots: int) -> GroupShape:
    """How a group along mesh axes lies on nodes of `slots` devices."""
    return _group_shape(tuple(axes), tuple(plan.mesh.items()), slots)


@lru_cache(maxsize=1 << 12)
def _group_shape(
    axes: tuple[str, ...], mesh: tuple[tuple[str, int], ...], slots: int
) -> GroupShape:
    stride, ranks, per_node = 1, 1, 1
    for axis, size in mesh:  # fastest varying first
        if axis in axes:
            ranks *= size
            if stride < slots and slots % stride == 0:
                per_node *= min(size, slots // stride)
        stride *= size
    per_node = min(per_node, ranks)
    return GroupShape(ranks=ranks, nodes=-(-ranks // per_node), per_node=per_node)


@lru_cache(maxsize=1 << 10)
def crossings(mesh: tuple[tuple[str, int], ...], slots: int) -> tuple[bool, ...]:
    """Per stage whether the next one (the first behind the last) lies on another node."""
    grid = Mesh(axes=dict(mesh))
    nodes = [grid.rank({"pp": stage}) // slots for stage in range(grid.axes["pp"])]
    return tuple(here != there for here, there in zip(nodes, [*nodes[1:], nodes[0]], strict=True))


def between(machine: Machine, kind: str, bytes: float, *, apart: bool) -> float:
    """Seconds of a call of two ranks, on one node or `apart`."""
    return duration(machine, kind, bytes, GroupShape(ranks=2, nodes=1 + apart, per_node=2 - apart))


def times(span: Span, count: int) -> Span:
    """So many spans in a row: lead = lead + (n - 1) max(device, host)."""
    if count == 0:
        return Span()
    more = (count - 1) * max(span.device, span.host)
    return Span(count * span.device, count * span.host, span.lead + more)
