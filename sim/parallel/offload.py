"""Offload: tensors are kept in the host's memory instead of the device's, and copied over the
host's links.

Optimizer states (ZeRO-Offload, Ren et al. 2021, section 4): gradients go to the host, its
processors update the weights, and the weights come back. Parameters (ZeRO-Infinity, Rajbhandari et
al. 2021, section 5.1): shards come to the device before they are gathered, and go back when the
device has updated them. Activations leave after a layer's forward pass and return before its
backward pass (vDNN, Rhu et al. 2016; Megatron-Core's `cpu_offloading`). Without `overlap` the
device waits for each copy.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from sim.hardware.cluster.topology import Topology
from sim.model.execution import ParameterGroup
from sim.model.kinds import is_layer
from sim.model.optimizers import gradient_width, optimizer_work
from sim.parallel.data import gradients_leave_early
from sim.parallel.job import Job
from sim.parallel.memory import state_of
from sim.parallel.mesh import Mesh
from sim.parallel.segments import Piece
from sim.parallel.state import shards
from sim.program.causes import OFFLOAD, OPTIMIZER, Cause
from sim.program.memory import NOTHING, MemoryUse
from sim.program.operations import (
    COMPUTE_STREAM,
    After,
    Communicate,
    Copy,
    Drained,
    HostLink,
    Operation,
    Recent,
)
from sim.program.schedule import PassVariant

TO_HOST, FROM_HOST, PROCESSORS = "to host", "from host", "host"

_OUT: tuple[HostLink, ...] = ("pcie-up", "memory")
_IN: tuple[HostLink, ...] = ("pcie-down", "memory")
_MOST_PARTS = 16  # parts of an update; each is copied while the next part is computed

Parameters = Mapping[ParameterGroup, float]


def copied(
    name: str,
    size: float,
    path: tuple[HostLink, ...],
    *,
    stream: str,
    after: After = (),
    cause: Cause = OFFLOAD,
    memory: MemoryUse = NOTHING,
) -> Communicate:
    """Return the operation that copies `size` bytes over the links of `path`."""
    call = Copy(bytes=size, name=name, cause=cause, path=path)
    return Communicate(name=name, calls=(call,), after=after, stream=stream, memory=memory)


# --- Parameters ----------------------------------------------------------------------------------


def share_in(job: Job, parameters: Parameters, name: str, after: After) -> tuple[Communicate, ...]:
    """Return the copies of the rank's own shards of these parameters to the device."""
    plan, offload = job.plan, job.plan.offload
    held = sum(count / shards(plan, group) for group, count in parameters.items())
    size = held * job.stack.weight_bytes(plan.precision) * offload.parameters
    path: tuple[HostLink, ...] = ("nvme-down", *_IN) if offload.nvme else _IN
    stream = _stream(job, FROM_HOST)
    return (copied(name, size, path, stream=stream, after=after),) if size else ()


def shares_out(job: Job, parameters: Parameters) -> Iterator[Communicate]:
    """Yield the copy, after the optimizer, of updated shards to the host, which keeps them."""
    offload = job.plan.offload
    trained = sum(n / shards(job.plan, group) for group, n in parameters.items() if group.trained)
    size = trained * job.stack.weight_bytes(job.plan.precision)
    size *= offload.parameters * (1.0 - offload.optimizer)
    path: tuple[HostLink, ...] = (*_OUT, "nvme-up") if offload.nvme else _OUT
    if size:
        stream = _stream(job, TO_HOST)
        yield copied("shards to host", size, path, stream=stream, after=("optimizer",))


# --- Optimizer states ----------------------------------------------------------------------------


def updated_on_host(job: Job, parameters: Parameters) -> float:
    """Return the number of these parameters that the host updates for this rank."""
    trained = ((group, count) for group, count in parameters.items() if group.trained)
    held = sum(count / shards(job.plan, group) for group, count in trained)
    return held * job.plan.offload.optimizer


def gradients_out(
    job: Job, parameters: Parameters, name: str, after: After, stream: str = TO_HOST
) -> Communicate:
    """Return the copy to the host of the gradients of parameters that the host updates."""
    width = gradient_width(job.kept_precision, job.stack.fusion.gradients)
    size = updated_on_host(job, parameters) * width
    return copied(name, size, _OUT, stream=stream, after=after)


def host_update(job: Job, parameters: Parameters) -> Iterator[Operation]:
    """Yield the host's update of its parameters after the gradient norm. With overlap the update
    has parts, and a part is updated while the previous part goes to the device."""
    offload = job.plan.offload
    count = updated_on_host(job, parameters)
    if not count:
        return
    if not gradients_leave_early(job, PassVariant("B", 0, last=True)):
        yield gradients_out(job, parameters, "gradients to host", ("norm",), _stream(job, TO_HOST))
    parts = _MOST_PARTS if offload.overlap else 1
    states = _states(job, parameters) / parts if offload.nvme else 0.0
    after: After = ("norm", Drained(TO_HOST))
    for number in range(parts):
        if states:
            read = f"states {number} from drive"
            path: tuple[HostLink, ...] = ("nvme-down", "memory")
            yield copied(read, states, path, stream=_stream(job, "read"), after=after)
            after = (read,)
        done, back = f"update {number}", f"weights {number} to device"
        moved = _host_bytes(job, count / parts)
        yield copied(
            done, moved, ("memory",), stream=_stream(job, PROCESSORS), after=after, cause=OPTIMIZER
        )
        weights = count / parts * job.stack.weight_bytes(job.plan.precision)
        if states:
            path, stream = ("memory", "nvme-up"), _stream(job, "write")
            kept = states + weights * offload.parameters
            yield copied(f"states {number} to drive", kept, path, stream=stream, after=(done,))
        size = weights * (1.0 - offload.parameters)
        if size:
            yield copied(back, size, _IN, stream=_stream(job, FROM_HOST), after=(done,))
        after = ("norm", Drained(TO_HOST))


def _stream(job: Job, stream: str) -> str:
    return stream if job.plan.offload.overlap else COMPUTE_STREAM


def _host_bytes(job: Job, count: float) -> float:
    """Return the bytes that an update moves through the host's memory: as many as the kernels of an
    update on a device move."""
    plan, stack = job.plan, job.stack
    kernels = optimizer_work(
        parameters=count,
        optimizer=plan.optimizer,
        moments=plan.moments,
        precision=job.kept_precision,
        gradients=stack.fusion.gradients,
        fused=stack.fused_host_optimizer,
        clip=stack.clip,
    )
    return sum(kernel.bytes for kernel in kernels if kernel.name != "zero gradients")


def _states(job: Job, parameters: Parameters) -> float:
    """Return the bytes of master weights and moments on the host."""
    return sum(
        state_of(job, group).on_host(count)["optimizer"] for group, count in parameters.items()
    )


# --- Activations ---------------------------------------------------------------------------------


class Activations:
    """Copies of the activations that layers keep, in one pass through a chunk. With overlap a layer
    waits until the activations of the layer two places before it have left. In the backward pass a
    layer's activations return while the previous layer of the pass computes. If only some layers
    are offloaded, their copies spread over the time of all layers (TransformerEngine,
    cpu_offload.py, `layer_window_map`)."""

    def __init__(
        self, job: Job, pieces: Sequence[Piece], variant: PassVariant, names: Sequence[str]
    ) -> None:
        self.job, self.pieces, self.names = job, pieces, names
        self.back = variant.kind in ("B", "I")
        layers = [n for n, piece in enumerate(pieces) if is_layer(piece.block.kind)]
        count = round(job.plan.offload.activations * len(layers))
        chosen = layers[::-1][:count][::-1] if self.back else layers[:count]
        self.moved = chosen if self.back or variant.kind == "F" else []
        self.ahead = 1 if job.plan.offload.overlap else 0
        self.window = max(len(layers) // max(count, 1), 1) if self.ahead else 1
        self.first = layers[0] if layers else 0

    def awaited(self, number: int) -> After:
        """Return the copies that the computation of a piece waits for."""
        if self.back:
            return (f"load {number}",) if number in self.moved else ()
        due = (number - self.first - self.ahead) // self.window
        return (
            (f"save {self.moved[min(due, len(self.moved)) - 1]}",)
            if due > 0 < len(self.moved)
            else ()
        )

    def opening(self) -> Iterator[Operation]:
        """Yield the copies before the first computation."""
        if self.back:
            yield from (self._load(n) for n in self.moved if n <= self.ahead)

    def behind(self, number: int) -> Iterator[Operation]:
        """Yield the copies after the computation of a piece."""
        if not self.back and number in self.moved:
            yield self._save(number)
        if self.back and number + 1 + self.ahead in self.moved:
            yield self._load(number + 1 + self.ahead)

    def _save(self, number: int) -> Operation:
        place = self.moved.index(number)
        gone = self.moved[max(place - self.ahead, 0) : place + 1 - self.ahead]
        if number == self.moved[-1]:
            gone = self.moved[max(place - self.ahead, 0) :]
        left = {"activations": -sum(self._size(n) for n in gone)}
        return copied(
            f"save {number}", self._size(number) / self.job.host_ranks, _OUT,
            stream=TO_HOST, after=(self.names[number],), memory=MemoryUse(left),
        )  # fmt: skip

    def _load(self, number: int) -> Operation:
        before = number - 1 - self.ahead
        after: After = (self.names[before],) if before >= 0 else (Recent(-before), Drained(TO_HOST))
        come = {"activations": self._size(number)}
        return copied(
            f"load {number}", self._size(number) / self.job.host_ranks, _IN,
            stream=FROM_HOST, after=after, memory=MemoryUse(come, come),
        )  # fmt: skip

    def _size(self, number: int) -> float:
        return self.pieces[number].block.saved


def kept_on_host(job: Job, kinds: Sequence[str]) -> float:
    """Return the bytes of activations that a forward pass of these blocks leaves on the host."""
    layers = [kind for kind in kinds if is_layer(kind)]
    count = round(job.plan.offload.activations * len(layers))
    return sum(job.block(kind).saved for kind in layers[:count]) / job.host_ranks


def host_memory(job: Job, topology: Topology) -> float:
    """Return the offloaded bytes in the memory of the fullest node. States and parameters that are
    kept on drives do not count."""
    if not job.plan.offload:
        return 0.0
    each = np.array([_of_rank(job, stage) for stage in range(job.plan.pp)])
    ranks = np.arange(topology.gpus)
    stages = ranks // Mesh(axes=job.plan.mesh).stride("pp") % job.plan.pp
    return float(np.bincount(ranks // topology.gpus_per_node, weights=each[stages]).max())


def _of_rank(job: Job, stage: int) -> float:
    """Return the bytes that a rank keeps on its host: states, parameters, and activations of all
    passes in flight."""
    chunks = job.chunks[stage]
    parameters = {} if job.plan.offload.nvme else job.parameters(chunks)
    states = sum(
        sum(state_of(job, group).on_host(count).values()) for group, count in parameters.items()
    )
    actions = job.plan.passes().actions[stage]
    kept = np.array([kept_on_host(job, chunk.kinds) for chunk in chunks])[actions.chunks]
    ways = np.select([actions.kinds == "F", actions.kinds == "W"], [1, 0], -1)
    return states + float(np.cumsum(ways * kept).max(initial=0.0))
