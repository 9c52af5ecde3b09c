"""What passes run: one routine for each occasion on which a chunk is passed through."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import zip_longest
from typing import NamedTuple

from sim.parallel import data
from sim.parallel.deferred import defers, without_gradients
from sim.parallel.job import Chunk, Job, host_time
from sim.parallel.memory import PassUses
from sim.parallel.pairs import merged
from sim.parallel.pipeline_p2p import packed, unpacked
from sim.parallel.segments import Piece, joined
from sim.parallel.zero import by_units, sharded_pass, tells_first
from sim.program.actions import Kind, Occasion
from sim.program.memory import MemoryUse, added, in_a_row
from sim.program.operations import INPUT, Collective, Communicate, Compute, Operation, Work
from sim.program.routine import Routine
from sim.program.schedule import Schedule


def held_up(job: Job, operations: Iterable[Operation]) -> tuple[Operation, ...]:
    """The same operations; the host's seconds before a communication are put at the end of the
    computation before it, or at the beginning of the first one."""
    done: list[Operation] = []
    early = 0.0
    for operation in operations:
        if isinstance(operation, Communicate):
            seconds = sum(
                job.checked(one) for one in operation.calls if isinstance(one, Collective)
            )
            last = max((n for n, one in enumerate(done) if isinstance(one, Compute)), default=None)
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
    """Where the model begins and ends on a stage, by chunk."""
    last = schedule.cuts - 1
    return tuple(Ends(piece == 0, piece == last) for piece in schedule.pieces[stage])


def routine(job: Job, stage: int, ends: tuple[Ends, ...], occasion: Occasion) -> Routine:
    """What an action of a stage runs on this occasion; that of equal chunks is one object."""
    own = _passes(job, stage, ends, occasion.chunk)
    if occasion.beside is None:
        return own.on(occasion._replace(chunk=0))
    kind, chunk = occasion.beside
    return own.beside(occasion, _passes(job, stage, ends, chunk), kind)


def _passes(job: Job, stage: int, ends: tuple[Ends, ...], number: int) -> "_ChunkPasses":
    chunk, own = job.chunks[stage][number], ends[number]
    return job.known.memo(("passes", job.key, chunk, own), lambda: _ChunkPasses(job, chunk, own))


def _sends_tokens(*routines: Routine) -> bool:
    calls = (call for routine in routines for call in routine.calls_inside)
    return any(isinstance(call, Collective) and call.kind == "all_to_all" for call in calls)


def _turns(kind: Kind, alone: Routine, beside: Routine, memory: MemoryUse) -> Routine:
    """What an action runs of two passes that take turns: all until the forward pass ends, or what
    is left of the other."""
    passes = (alone, beside) if kind == "F" else (beside, alone)
    flat = [
        [item for operation in routine if isinstance(operation, Compute)
         for item in operation.work.flat()]
        for routine in passes
    ]  # fmt: skip
    work = Work(name=_NAMES[kind], items=merged(*flat)[kind != "F"])
    return Routine((Compute(name="", work=work, after=(INPUT,), memory=memory),))


class _ChunkPasses:
    """The passes through one chunk."""

    def __init__(self, job: Job, chunk: Chunk, ends: Ends) -> None:
        self.job, self.slots, self.ends = job, chunk.slots, ends
        self.key = job.key, chunk, ends
        self._parameters = job.parameters([chunk])
        self._replicated = data.replicated(job, self._parameters)
        self._uses = PassUses(job, chunk, sends=not ends.last)
        self._known: dict[Occasion, Routine] = {}

    def on(self, occasion: Occasion) -> Routine:
        """The routine of an occasion; that of the first forward pass is seldom one of its own."""
        if occasion.kind == "F" and not tells_first(self.job, self._parameters):
            occasion = occasion._replace(first=False)
        if occasion not in self._known:
            self._known[occasion] = self._written(occasion)
        return self._known[occasion]

    def beside(self, occasion: Occasion, other: "_ChunkPasses", partner: Kind) -> Routine:
        """The routine of a pass that takes turns with one through another chunk."""
        own = occasion.kind
        alone, beside = self.on(Occasion(own, 0)), other.on(Occasion(partner, 0))
        if len(alone) > 1 or len(beside) > 1 or not _sends_tokens(alone, beside):
            return self.on(Occasion(own, 0, occasion.first))
        key = "turns", self.key, own, occasion.first, other.key, partner
        taken = self._taken_beside(other, partner) if own == "F" else self._grown(occasion)
        return self.job.known.memo(key, lambda: _turns(own, alone, beside, taken))

    def _taken_beside(self, other: "_ChunkPasses", partner: Kind) -> MemoryUse:
        """Memory of a forward pass and of the one beside it, layer by layer: what one keeps takes
        the place of what the other gives back (Megatron-Core, model_chunk_schedule_plan.py, `run`).
        """
        passes = self._pieces(Occasion("F", 0)), other._pieces(Occasion(partner, 0))
        return in_a_row(piece.memory for pair in zip_longest(*passes) for piece in pair if piece)

    def _grown(self, occasion: Occasion) -> MemoryUse:
        """What a backward pass leaves more of than others, if it is the first one."""
        usual, own = (
            self.on(Occasion(occasion.kind, 0, first)) for first in (False, occasion.first)
        )
        kept = added(own.memory.kept, {p: -size for p, size in usual.memory.kept.items()})
        return MemoryUse(kept, kept)

    def _written(self, occasion: Occasion) -> Routine:
        pieces = list(self._pieces(occasion))
        if pieces and by_units(self.job, self._parameters, occasion):
            return Routine(held_up(self.job, sharded_pass(self.job, pieces, occasion)))
        if pieces and self._overlaps(occasion):
            return Routine(tuple(data.overlapped(self.job, pieces)))
        whole = joined(pieces, name=_NAMES[occasion.kind])
        return Routine((Compute(name="", work=whole.work, after=(INPUT,), memory=whole.memory),))

    def _overlaps(self, occasion: Occasion) -> bool:
        return self._replicated and self.job.overlaps_gradients and occasion.last

    def _pieces(self, occasion: Occasion) -> Iterator[Piece]:
        """The blocks of a pass in its order; equal ones between a chunk's ends are one object."""
        numbers = range(len(self.slots))
        pieces: dict[tuple[object, bool, bool], Piece] = {}
        for number in numbers if occasion.kind == "F" else numbers[::-1]:
            key = self.slots[number], number == 0, number == len(self.slots) - 1
            if key not in pieces:
                pieces[key] = self._piece(occasion, number)
            yield pieces[key]

    def _piece(self, occasion: Occasion, number: int) -> Piece:
        """A block, with the exchange with neighbouring stages at both ends of the chunk."""
        (kind, again), last = self.slots[number], len(self.slots) - 1
        block = self.job.block(kind, again)
        if defers(self.job, kind, occasion):
            block, occasion = without_gradients(block), occasion._replace(kind="I")
        work = self.job.work(kind, occasion.kind, again)
        begin, end = (0, last) if occasion.kind == "F" else (last, 0)
        if number == begin:
            work = self._fed(work, occasion.kind)
        if number == end and self._passes_on(occasion.kind):
            work = Work(name=work.name, items=(work, *packed(self.job)))
        return Piece(block, work, self._uses.of(occasion, number))

    def _fed(self, work: Work, action: Kind) -> Work:
        """The first work of a pass, behind what it receives."""
        alone = action == "W" or (self.ends.first if action == "F" else self.ends.last)
        before = () if alone else unpacked(self.job)
        return Work(name=work.name, items=(*before, work)) if before else work

    def _passes_on(self, action: Kind) -> bool:
        return action != "W" and not (self.ends.last if action == "F" else self.ends.first)
