"""Memory of workers and servers: the memory of a step, and the additional vectors of a method."""

from collections.abc import Iterator, Mapping

from sim.config.dataclass import dataclass
from sim.engine.live_cluster import Endpoint
from sim.hardware.cluster.topology import Topology
from sim.jobs.sharing.plan import FP32, ServerBased, Sharing
from sim.jobs.sharing.workload import Workload

_OF_OPTIMIZER = ("optimizer", "optimizer step")  # parts that are kept where the optimizer runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The bytes that a place called `name` holds, by part, and its `room` (bytes; 0: unknown)."""

    name: str
    parts: Mapping[str, float]
    room: float

    @property
    def total(self) -> float:
        return sum(self.parts.values())

    @property
    def fits(self) -> bool:
        return not self.room or self.total <= self.room


def holders(
    plan: Sharing, workloads: tuple[Workload, ...], shares: Mapping[Endpoint, float],
    topology: Topology, gpus: int,
) -> Iterator[Holder]:  # fmt: skip
    """Yield the fullest GPU of all workers, GPU 0 if the method keeps more on it than on other
    GPUs, and the fullest server. A worker has `gpus` GPUs."""
    fullest = max(workloads, key=lambda workload: sum(workload.held.values()))
    if fullest.held:
        parts = dict(fullest.held)
        piece = fullest.parameters / (gpus if fullest.in_pieces else 1)
        kept = plan.kept(piece, fullest.width, len(workloads))
        if plan.optimizer_elsewhere:
            parts = {name: size for name, size in parts.items() if name not in _OF_OPTIMIZER}
        yield Holder(name="a worker's fullest GPU", parts={**parts, **kept}, room=fullest.room)
        inputs, outputs = fullest.inputs * fullest.batch, fullest.outputs * fullest.batch
        if first := plan.kept_first(inputs, outputs, len(workloads)):
            yield Holder(name="GPU 0", parts={**fullest.held, **first}, room=fullest.room)
    if isinstance(plan, ServerBased):
        memory = topology.host.memory if topology.host else 0.0
        yield server(plan, workloads, max(shares.values()), memory)


def server(plan: ServerBased, workloads: tuple[Workload, ...], share: float, room: float) -> Holder:
    """The memory of the host with the largest share of the weights.

    The host holds its share of the weights, of the method's further vectors, and replicas of other
    shards (Li et al. 2014, section 3). It also has room for a message from every worker."""
    touched = workloads[0].parameters * share
    stored = workloads[0].stored * share or touched
    kept = {"weights": stored * FP32, **plan.kept_by_server(stored, len(workloads))}
    parts = {name: (1 + plan.recovery.replicas) * size for name, size in kept.items()}
    messages = len(workloads) * touched * workloads[0].width
    return Holder(name="a server", parts={**parts, "messages": messages}, room=room)
