"""The memory of a rank, read off its operations in their order.

Operations say what they allocate and free (`sim.program.memory`). This module gives the memory use
of passes and of the optimizer, and the sum over a step: the worst moment and its parts.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial

from sim.config.dataclass import dataclass
from sim.model import optimizers
from sim.model.block import Block
from sim.model.execution import ParameterGroup
from sim.model.kernels import Item, Lag, Mark, Overlap
from sim.parallel.job import Chunk, Job
from sim.parallel.state import State, frozen, gradient_axes, shards, state
from sim.program.memory import NOTHING, MemoryUse, Parts, added
from sim.program.memory_levels import levels_of
from sim.program.operations import Collective
from sim.program.program import Program
from sim.program.schedule import Kind, PassVariant


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes of one rank by part at its worst moment, and at rest.

    `parts` add up to `total`, the most that tensors take at once; `rest` is still allocated at the
    end of the optimizer step; `fragmented` is reserved by the allocator, which cannot use it.
    """

    parts: Parts
    rest: float
    fragmented: float

    @property
    def total(self) -> float:
        return sum(self.parts.values())

    @property
    def reserved(self) -> float:
        return self.total + self.fragmented

    def fits(self, capacity: float) -> bool:
        """Whether the rank fits into `capacity`, the bytes that CUDA's context and NCCL leave."""
        return self.reserved <= capacity


def memory(job: Job, program: Program, stage: int) -> Memory:
    """Return the memory of a rank of one stage of a program."""
    step = levels_of(program, stage)
    return Memory(
        parts=step.by_part(step.during[step.fullest]),
        rest=float(step.after[-1].sum()),
        fragmented=_fragmented(job, stage),
    )


def memories(job: Job, program: Program) -> list[Memory]:
    """Return the memory of a rank of every stage."""
    return [memory(job, program, stage) for stage in range(job.plan.pp)]


def state_of(job: Job, group: ParameterGroup, chunks: tuple[Chunk, ...] = ()) -> State:
    """Return the state of a parameter group of some chunks, by default of all stages together."""
    chunks = chunks or sum(job.chunks, ())
    return job.known.memo(("state", job.key, group, chunks), lambda: _state_of(job, group, chunks))


def _state_of(job: Job, group: ParameterGroup, chunks: tuple[Chunk, ...]) -> State:
    plan, stack = job.plan, job.stack
    recipe = job.recipe if group.low else None
    if not group.trained:
        return frozen(recipe, plan.precision, plan.zero, shards(plan, group))
    return state(
        precision=job.kept_precision,
        moments=_moments(job, group, chunks),
        gradients=stack.fusion.gradients,
        zero=plan.zero,
        shards=shards(plan, group),
        replicas=plan.degree(gradient_axes(plan, group)),
        fused=stack.fused_optimizer,
        master=stack.master_weights,
        allocator=stack.allocator,
        recipe=recipe if job.kept_precision == plan.precision else None,
        offload=plan.offload,
    )


def _moments(job: Job, group: ParameterGroup, chunks: tuple[Chunk, ...]) -> float:
    """Return the bytes of an optimizer's states for each parameter of a group."""
    optimizer, count = optimizers.of(job.plan.optimizer), job.parameters(chunks)[group]
    matrices = job.matrices(chunks).get(group, ())
    return optimizer.state_bytes(count, matrices, job.plan.moments) / count


def resident(job: Job, stage: int) -> Parts:
    """Return the bytes that stay from step to step: model state and the stack's own buffers."""
    allocator = job.stack.allocator
    kept: list[Parts] = []
    further = max(job.plan.versions(stage) - 1, 0)
    for group, count in job.parameters(job.chunks[stage]).items():
        state = state_of(job, group, job.chunks[stage])
        kept.append({**state.parts(count), **({"gradients": 0.0} if state.growing else {})})
        if further and group.trained:
            kept.append({"weight versions": further * state.parts(count)["weights"]})
        if error := _error_bytes(job, group):
            kept.append({"compression error": count * error})
    gathered = _activation(job) if job.plan.sequence_parallel else 0.0
    buffers = {"buffers": allocator.workspace + allocator.gather_buffers * gathered}
    return added(*kept, buffers)


def _error_bytes(job: Job, group: ParameterGroup) -> float:
    """Return the bytes per parameter of compression errors that ranks keep. An error is as wide as
    a gradient in its sum (torch, powerSGD_hook.py, `error_dict`)."""
    way = job.plan.gradients
    if way is None or not (way.keeps_error and group.trained):
        return 0.0
    from sim.parallel import compressed

    if not compressed.summed_axes(job.plan, group):
        return 0.0
    return job.stack.reduced_bytes(job.plan.precision) / compressed.shares(job.plan, group)


def optimizer_use(job: Job, stage: int) -> MemoryUse:
    """Return the optimizer's use of memory. The optimizer has temporaries, leaves the copies of
    ZeRO's gather, and frees the gradients that grew in the backward passes."""
    peak = copies = gone = 0.0
    for group, count in job.parameters(job.chunks[stage]).items():
        state = state_of(job, group, job.chunks[stage])
        peak += count * state.share(1) * state.update * (1.0 - job.plan.offload.optimizer)
        copies += count * state.gather
        gone += count * (
            state.growing * state.gradients * state.share(2) + state.beside * _several(job)
        )
    left = {"optimizer step": copies} if copies else {}
    freed = {"gradients": -gone} if gone else {}
    return MemoryUse({**left, **freed}, {"optimizer step": peak + copies})


class PassUses:
    """Use of memory by the passes through one chunk, block by block."""

    def __init__(self, job: Job, chunk: Chunk, *, sends: bool) -> None:
        self.job, self.chunk = job, chunk
        self.blocks = list(job.blocks(chunk))
        allocator = job.stack.allocator
        queued = _queued(self.blocks, allocator.run_ahead)
        self.queued = {"communication": queued} if queued else {}
        scattered = job.plan.tp if job.plan.sequence_parallel else 1
        output = _activation(job) * _in_sequences(job, chunk.kinds)
        self.output = output / scattered * (allocator.keeps_outputs and sends)
        self.tied = _tied(job) if {"embedding", "head"} <= set(chunk.kinds) else 0.0

    @cached_property
    def states(self) -> Mapping[ParameterGroup, State]:
        groups = self.job.parameters([self.chunk])
        return {group: state_of(self.job, group, (self.chunk,)) for group in groups}

    def of(self, variant: PassVariant, number: int) -> MemoryUse:
        """Return the use of memory by a pass through the block with this number."""
        use = self.before_gradients(variant.kind, number)
        if variant.kind in ("F", "I"):
            return use
        made = self._gradients(self.blocks[number], first=variant.first)
        use = MemoryUse({**use.kept, **made}, use.peak)
        return use if number else use.then(self._accumulated())

    def before_gradients(self, kind: Kind, number: int) -> MemoryUse:
        """Return a pass's use of memory without gradients, which does not depend on sharding."""
        return self._forward(number) if kind == "F" else self._backward(number, kind)

    def _forward(self, number: int) -> MemoryUse:
        block = self.blocks[number]
        output = self.output if number == len(self.blocks) - 1 else 0.0
        kept = {"activations": block.saved + output}
        return MemoryUse(kept, {**kept, "transient": block.transient, **self.queued})

    def _backward(self, number: int, kind: Kind) -> MemoryUse:
        block = self.blocks[number]
        output = self.output if number == len(self.blocks) - 1 and kind != "W" else 0.0
        kept = {"activations": _left_by(block, kind) - output}
        waiting = self.tied if block.kind == "head" else 0.0
        summed = self.tied if block.kind == "embedding" else 0.0
        if self.tied and kind != "I":
            kept["transient"] = waiting - summed
        restored = {"activations": block.saved - block.freed} if block.freed < block.saved else {}
        return MemoryUse(kept, {**restored, "transient": block.transient + summed})

    def _gradients(self, block: Block, *, first: bool) -> dict[str, float]:
        """Return the bytes by which the gradients of a block grow in this pass."""
        grown = fresh = 0.0
        for group, count in block.parameters.items():
            state = self.states[group]
            fresh += count * state.fresh
            if first:
                grown += count * state.growing * state.gradients * state.share(2)
                grown += count * state.beside * _several(self.job)
        return {
            **({"gradients": grown} if grown else {}),
            **({"fresh gradients": fresh} if fresh else {}),
        }

    def _accumulated(self) -> MemoryUse:
        """Return the use that frees fresh gradients as the pass ends."""
        fresh = sum(
            count * self.states[group].fresh
            for block in self.blocks
            for group, count in block.parameters.items()
        )
        return MemoryUse({"fresh gradients": -fresh}) if fresh else NOTHING


def _left_by(block: Block, kind: Kind) -> float:
    """Return the change of a block's activations by a backward pass, or half of one, in bytes."""
    if kind == "W":
        return -block.held
    return (block.held if kind == "I" else 0.0) - block.freed


def _several(job: Job) -> bool:
    """Whether a step has several micro-steps, so that gradients of earlier micro-steps exist."""
    return job.plan.microbatches > 1


def _activation(job: Job) -> float:
    """Return the bytes of a layer's whole input."""
    return float(job.execution.rows * job.model.hidden * job.stack.weight_bytes(job.plan.precision))


def _in_sequences(job: Job, kinds: tuple[str, ...]) -> float:
    """Return the length of a chunk's output relative to a sequence of the model; a decoder's output
    has the length of the decoder's sequence."""
    if not job.model.decoder_seq:
        return 1.0
    from sim.parallel.encoder_decoder import kept_tokens

    return kept_tokens(job.model, kinds) / job.model.seq


def _tied(job: Job) -> float:
    """Return the bytes of a tied output layer's gradient, if autograd holds it until the embedding
    has made its own."""
    if job.stack.fusion.gradients != "fresh" or not job.model.tied_embeddings:
        return 0.0
    return float(
        job.execution.vocab * job.model.hidden * job.stack.weight_bytes(job.plan.precision)
    )


def _fragmented(job: Job, stage: int) -> float:
    """Return the bytes that the allocator has reserved but cannot use: blocks that held transients
    before the optimizer created its moments between them."""
    if not job.stack.allocator.lazy_state:
        return 0.0
    moments = flat = 0.0
    for group, count in job.parameters(job.chunks[stage]).items():
        state = state_of(job, group, job.chunks[stage])
        moments += count * state.share(1) * state.moments
        flat += count * (state.weights * state.share(2) + state.share(1) * state.update)
    if job.stack.allocator.flat_step:
        return flat
    blocks = (block for chunk in job.chunks[stage] for block in job.blocks(chunk))
    return min(moments, max((block.transient for block in blocks), default=0.0))


def _queued(blocks: Iterable[Block], window: int) -> float:
    """Return the bytes of reduce-scatters' inputs that are alive because the host runs `window`
    launches ahead. Only the queued communication keeps these inputs alive."""
    launches, alive = 0, 0.0
    for block in blocks:
        for item in block.forward:
            if launches >= window:
                return alive
            launches += _launches(item)
            call = item.collective if isinstance(item, Overlap) else item
            if isinstance(call, Collective) and call.kind == "reduce_scatter":
                alive += call.bytes
    return alive


def _launches(item: Item) -> int:
    if isinstance(item, Lag | Mark):
        return 0
    if isinstance(item, Collective):
        return 1
    if isinstance(item, Overlap):
        return 1 + sum(kernel.launches for kernel in item.kernels)
    return item.launches


def fragmented(job: Job) -> list[float]:
    """Return for each stage the bytes that its allocator has reserved but cannot use."""
    return [
        job.known.memo(("fragmented", job.key, chunks), partial(_fragmented, job, stage))
        for stage, chunks in enumerate(job.chunks)
    ]


def fullest(memories: Sequence[Memory]) -> Memory:
    """Return the memory of the rank that reserves most."""
    return max(memories, key=lambda memory: memory.reserved)
