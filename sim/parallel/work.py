"""The work of one stage: what a microbatch's passes through its chunks execute."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sim.hardware.device import Device
from sim.hardware.kernels.time import kernel_time
from sim.hardware.stack import Stack
from sim.model.ends import embedding_work, head_work
from sim.model.execution import Sharding
from sim.model.kernels import Item, Kernel, LayerWork, MemoryBound
from sim.model.layers import layer_work
from sim.model.optimizer import optimizer_work
from sim.model.transformer import Transformer
from sim.parallel.balance import Chunk
from sim.parallel.plan import Plan
from sim.parallel.segments import segments
from sim.program import Collective, Segment, Work

Items = tuple[Segment | Collective, ...]


@dataclass(frozen=True)
class Job:
    """A model, a resolved plan, the stack that runs it and the device that executes it.

    `nodes` is how many it runs on, `stall` what each forward pass loses to the allocator.
    """

    model: Transformer
    plan: Plan
    stack: Stack
    device: Device
    chunks: tuple[tuple[Chunk, ...], ...]
    nodes: int = 1
    stall: float = 0.0

    @cached_property
    def layer(self) -> LayerWork:
        return layer_work(self.model, recompute=self.plan.recompute, **self._options)

    @cached_property
    def embedding(self) -> LayerWork:
        return embedding_work(self.model, **self._options)

    @cached_property
    def head(self) -> LayerWork:
        # A last stage that is not the first holds its own copy of a tied embedding.
        return head_work(self.model, own_output=self.plan.pp > 1, **self._options)

    @property
    def _options(self) -> dict[str, Any]:
        plan = self.plan
        return {
            "microbatch": plan.microbatch,
            "sharding": Sharding(tp=plan.tp, sequence_parallel=plan.sequence_parallel, cp=plan.cp),
            "precision": plan.precision,
            "fusion": self.stack.fusion,
            "later": 1.0 - 1.0 / plan.microbatches,
            "bucketed": 1.0 / plan.microbatches if plan.replicas > 1 and not plan.zero else 0.0,
        }

    def time(self, kernel: Kernel) -> float:
        return kernel_time(kernel, self.device, self.stack.attention)

    @property
    def call(self) -> float:
        """The host's seconds per tensor-parallel collective."""
        stack, further = self.stack, self.plan.tp - 1
        return stack.launch_collective + further * stack.launch_member * self.crosses_nodes

    @property
    def crosses_nodes(self) -> bool:
        """Whether it is a pipeline over several nodes."""
        return self.plan.pp > 1 and self.nodes > 1

    @property
    def opening(self) -> float:
        """The host's seconds per step, before the first launch."""
        return self.stack.step_host + self.nodes * self.stack.step_node

    def parameters(self, chunk: Chunk) -> float:
        """Parameters that one rank holds of a chunk."""
        return (
            chunk.layers * self.layer.parameters
            + chunk.embedding * self.embedding.parameters
            + chunk.head * self.head.parameters
        )


def forward(job: Job, chunk: Chunk) -> Work:
    """The whole forward pass of a chunk: embedding, layers, head, whatever of these it has."""
    return join((work for work, _ in forward_pieces(job, chunk)), name="forward")


def forward_pieces(job: Job, chunk: Chunk) -> list[tuple[Work, float]]:
    """The forward pass of a chunk cut behind the embedding and each layer, with parameters."""
    pieces = []
    if chunk.embedding:
        pieces.append((_forward(job, job.embedding, 0), job.embedding.parameters))
    pieces += [(_forward(job, job.layer, 1), job.layer.parameters)] * chunk.layers
    if chunk.head:
        pieces.append((_forward(job, job.head, 0), job.head.parameters))
    return [(Work(name="forward", items=items), count) for items, count in pieces]


def backward_pieces(job: Job, chunk: Chunk) -> list[tuple[Work, float]]:
    """The backward pass of a chunk cut after the head, each layer and the embedding.

    Each piece comes with the parameters whose gradients are complete at its end.
    """
    pieces = []
    if chunk.head:
        pieces.append((_backward(job, job.head, 0), job.head.parameters))
    pieces += [(_backward(job, job.layer, 1), job.layer.parameters)] * chunk.layers
    if chunk.embedding:
        pieces.append((_backward(job, job.embedding, 0), job.embedding.parameters))
    return [(Work(name="backward", items=items), count) for items, count in pieces]


def backward(job: Job, chunk: Chunk) -> Work:
    """The whole backward pass of a chunk, recomputation included."""
    return join(work for work, _ in backward_pieces(job, chunk))


def join(works: Iterable[Work], *, name: str = "backward") -> Work:
    """Works in a row as one."""
    return Work(name=name, items=tuple(item for work in works for item in work.items))


def _forward(job: Job, work: LayerWork, layers: int) -> Items:
    stack = job.stack
    items = _segments(job, work.forward, "forward", "compute", stack.launch_forward)
    return with_host(items, stack.layer_forward * layers)


def _backward(job: Job, work: LayerWork, layers: int) -> Items:
    stack = job.stack
    again = _segments(job, work.recompute, "recompute", "recompute", stack.launch_forward)
    items = _segments(job, work.backward, "backward", "compute", stack.launch_backward)
    host = stack.layer_backward * layers + (stack.layer_forward * layers if again else 0.0)
    return with_host(again + items, host)


def _segments(job: Job, items: Iterable[Item], name: str, cause: str, launch: float) -> Items:
    return segments(items, name=name, cause=cause, time=job.time, launch=launch, call=job.call)


def with_host(items: Items, host: float) -> Items:
    """Host time that no kernel launch accounts for (python between modules), put in front."""
    if host == 0.0 or not items:
        return items
    return (Segment(name="host", cause="compute", device=0.0, host=host, lead=host), *items)


def optimizer(job: Job, parameters: float, layers: int) -> Items:
    """The optimizer's step on a rank that holds so many parameters and layers."""
    kernels = optimizer_kernels(job, parameters, layers)
    launch = job.stack.optimizer_launch
    return segments(kernels, name="optimizer", cause="optimizer", time=job.time, launch=launch)


def optimizer_kernels(job: Job, parameters: float, layers: int) -> tuple[MemoryBound, ...]:
    """What the optimizer's step executes there."""
    plan, stack = job.plan, job.stack
    return optimizer_work(
        parameters=parameters,
        updated=parameters / plan.copies if plan.zero else None,
        optimizer=plan.optimizer,
        precision=plan.precision,
        gradients=stack.fusion.gradients,
        fused=stack.fused_optimizer,
        clip=stack.clip,
        tensors=layers * _tensors_of_a_layer(job.model) + 2,
    )


def _tensors_of_a_layer(model: Transformer) -> int:
    """Parameter tensors: linear layers and two norms, each with its bias where there is one."""
    return (6 + model.gated_mlp) * (2 if model.bias else 1)
