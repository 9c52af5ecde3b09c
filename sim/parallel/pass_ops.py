"""The operations of passes, written once for each variant of a pass through a chunk."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import zip_longest
from typing import NamedTuple

from sim.parallel import data
from sim.parallel.job import Chunk, Job, host_time
from sim.parallel.memory import PassUses
from sim.parallel.pipeline_p2p import handed, packed, unpacked
from sim.parallel.segments import Piece, joined
from sim.program.memory import MemoryUse, added, in_a_row
from sim.program.operations import (
    INPUT,
    Collective,
    Communicate,
    Compute,
    Operation,
    PassOps,
    Work,
)
from sim.program.schedule import Kind, PassVariant, Schedule


def held_up(job: Job, operations: Iterable[Operation]) -> tuple[Operation, ...]:
    """Return the operations with the seconds of the host's checks. The checks of a communication
    lengthen the end of the computation before it, or else the beginning of the first computation.
    """
    done: list[Operation] = []
    early = 0.0
    for operation in operations:
        if isinstance(operation, Communicate):
            seconds = sum(
                job.checked(call) for call in operation.calls if isinstance(call, Collective)
            )
            last = max((n for n, op in enumerate(done) if isinstance(op, Compute)), default=None)
            if last is None:
                early += seconds
            else:
                done[last] = _longer(done[last], behind=seconds)
        elif early:
            operation, early = _longer(operation, before=early), 0.0
        done.append(operation)
    if early:
        work = Work(name="checks", items=host_time(early))
        done.insert(0, Compute(name="checks", work=work))
    return tuple(done)


def _longer(operation: Operation, *, before: float = 0.0, behind: float = 0.0) -> Operation:
    if not (before or behind) or not isinstance(operation, Compute):
        return operation
    work = operation.work
    items = (*host_time(before), *work.items, *host_time(behind))
    return replace(operation, work=replace(work, items=items))


_NAMES: dict[Kind, str] = {"F": "forward", "B": "backward", "I": "backward", "W": "weights"}


class Ends(NamedTuple):
    """Whether the model begins in a chunk, and whether it ends there."""

    first: bool
    last: bool


def ends_of(schedule: Schedule, stage: int) -> tuple[Ends, ...]:
    """Return for each chunk of a stage whether the model begins or ends in it."""
    last = schedule.cuts - 1
    return tuple(Ends(piece == 0, piece == last) for piece in schedule.pieces[stage])


def pass_ops(job: Job, stage: int, ends: tuple[Ends, ...], variant: PassVariant) -> PassOps:
    """Return the operations of a variant of a stage's passes; equal chunks share one object."""
    passes = _passes(job, stage, ends, variant.chunk)
    if variant.beside is None:
        return passes.on(variant._replace(chunk=0))
    kind, chunk = variant.beside
    return passes.beside(variant, _passes(job, stage, ends, chunk), kind)


def _passes(job: Job, stage: int, ends: tuple[Ends, ...], number: int) -> "_ChunkPasses":
    chunk, end = job.chunks[stage][number], ends[number]
    return job.known.memo(("passes", job.key, chunk, end), lambda: _ChunkPasses(job, chunk, end))


class _ChunkPasses:
    """The passes through one chunk."""

    def __init__(self, job: Job, chunk: Chunk, ends: Ends) -> None:
        self.job, self.chunk, self.slots, self.ends = job, chunk, chunk.slots, ends
        self.key = job.key, chunk, ends
        self._parameters = job.parameters([chunk])
        self._replicated = data.replicated(job, self._parameters)
        self._uses = PassUses(job, chunk, sends=not ends.last)
        self._known: dict[PassVariant, PassOps] = {}

    def on(self, variant: PassVariant) -> PassOps:
        """Return the operations of a variant; the first forward pass rarely differs from others."""
        if variant.kind == "F" and not data.tells_first(self.job, self._parameters):
            variant = variant._replace(first=False)
        if variant not in self._known:
            self._known[variant] = self._written(variant)
        return self._known[variant]

    def beside(self, variant: PassVariant, other: "_ChunkPasses", partner: Kind) -> PassOps:
        """Return the operations of a pass that takes turns with a pass through another chunk."""
        from sim.parallel.pass_turns import sends_tokens, turns

        kind = variant.kind
        alone, beside = self.on(PassVariant(kind, 0)), other.on(PassVariant(partner, 0))
        if len(alone) > 1 or len(beside) > 1 or not sends_tokens(alone, beside):
            return self.on(PassVariant(kind, 0, variant.first))
        key = "turns", self.key, kind, variant.first, other.key, partner
        taken = self._taken_beside(other, partner) if kind == "F" else self._grown(variant)
        return self.job.known.memo(key, lambda: turns(kind, alone, beside, taken, _NAMES[kind]))

    def _taken_beside(self, other: "_ChunkPasses", partner: Kind) -> MemoryUse:
        """Return the memory of a forward pass and its partner, layer by layer. Tensors that a layer
        keeps take memory that the partner frees (Megatron-Core, model_chunk_schedule_plan.py,
        `run`)."""
        passes = self._pieces(PassVariant("F", 0)), other._pieces(PassVariant(partner, 0))
        return in_a_row(piece.memory for pair in zip_longest(*passes) for piece in pair if piece)

    def _grown(self, variant: PassVariant) -> MemoryUse:
        """Return the memory that a step's first backward pass keeps beyond a later pass."""
        usual, this = (
            self.on(PassVariant(variant.kind, 0, first)) for first in (False, variant.first)
        )
        kept = added(this.memory.kept, {p: -size for p, size in usual.memory.kept.items()})
        return MemoryUse(kept, kept)

    def _written(self, variant: PassVariant) -> PassOps:
        pieces = list(self._pieces(variant))
        if pieces and data.by_units(self.job, self._parameters, variant):
            from sim.parallel.zero import sharded_pass

            return PassOps(held_up(self.job, sharded_pass(self.job, pieces, variant)))
        if pieces and self._overlaps(variant):
            from sim.parallel.buckets import overlapped

            return PassOps(held_up(self.job, overlapped(self.job, pieces)))
        whole = joined(pieces, name=_NAMES[variant.kind])
        return PassOps((Compute(name="", work=whole.work, after=(INPUT,), memory=whole.memory),))

    def _overlaps(self, variant: PassVariant) -> bool:
        return self._replicated and self.job.overlaps_gradients and variant.last

    def _pieces(self, variant: PassVariant) -> Iterator[Piece]:
        """Yield the blocks of a pass; equal blocks between a chunk's ends share an object."""
        numbers = range(len(self.slots))
        pieces: dict[tuple[object, bool, bool], Piece] = {}
        for number in numbers if variant.kind == "F" else numbers[::-1]:
            key = self.slots[number], number == 0, number == len(self.slots) - 1
            if key not in pieces:
                pieces[key] = self._piece(variant, number)
            yield pieces[key]

    def _piece(self, variant: PassVariant, number: int) -> Piece:
        """Return a block of a pass. Blocks at the ends of a chunk unpack and pack messages."""
        (kind, again, words), last = self.slots[number], len(self.slots) - 1
        block = self.job.block(kind, again, words)
        if self.job.defers(kind, variant):  # so its gradients cannot be summed yet
            block, variant = replace(block, parameters={}), variant._replace(kind="I")
        work = self.job.work(kind, variant.kind, again, words)
        begin, end = (0, last) if variant.kind == "F" else (last, 0)
        if number == begin:
            work = self._fed(work, variant.kind)
        if number == end and self._passes_on(variant.kind):
            size = handed(self.job, self.chunk.kinds, behind=variant.kind == "F")
            work = Work(name=work.name, items=(work, *packed(self.job, size)))
        return Piece(block, work, self._uses.of(variant, number))

    def _fed(self, work: Work, action: Kind) -> Work:
        """Return the first work of a pass, after the unpacking of received tensors."""
        alone = action == "W" or (self.ends.first if action == "F" else self.ends.last)
        size = handed(self.job, self.chunk.kinds, behind=action != "F")
        before = () if alone else unpacked(self.job, size)
        return Work(name=work.name, items=(*before, work)) if before else work

    def _passes_on(self, action: Kind) -> bool:
        return action != "W" and not (self.ends.last if action == "F" else self.ends.first)
