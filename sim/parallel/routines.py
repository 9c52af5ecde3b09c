"""What the passes of a stage run: one routine for each occasion in its schedule."""

from collections.abc import Iterator

from sim.parallel import data
from sim.parallel.boundary import packed, unpacked
from sim.parallel.job import Chunk, Job, with_host
from sim.parallel.memory import PassUses
from sim.parallel.piece import Piece, joined
from sim.parallel.zero import sharded_pass
from sim.program.actions import Kind, Occasion
from sim.program.operations import INPUT, Compute, Work
from sim.program.program import Routine
from sim.program.schedule import Schedule

_NAMES: dict[Kind, str] = {"F": "forward", "B": "backward", "I": "backward", "W": "weights"}


class Routines:
    """Writes the routines of one stage; what its passes through a chunk share is built once."""

    def __init__(self, job: Job, stage: int, schedule: Schedule) -> None:
        self.job, self.chunks = job, job.chunks[stage]
        last = len(schedule.owners) - 1
        self.first = [piece == 0 for piece in schedule.pieces[stage]]
        self.last = [piece == last for piece in schedule.pieces[stage]]
        parameters = job.parameters(self.chunks)
        self._replicated = data.replicated(job, parameters)
        self._sharded = data.sharded(job, parameters)
        self._uses = [
            PassUses(job, chunk, sends=not last)
            for chunk, last in zip(self.chunks, self.last, strict=True)
        ]

    def of(self, occasion: Occasion) -> Routine:
        """What an action on this occasion runs."""
        pieces = list(self._pieces(occasion))
        gathers, reduces = self._gathers(occasion), self._reduces(occasion)
        if gathers or reduces:
            return tuple(sharded_pass(self.job, pieces, gathers=gathers, reduces=reduces))
        if self._overlaps(occasion):
            return tuple(data.overlapped(self.job, pieces))
        whole = joined(pieces, name=_NAMES[occasion.kind])
        return (Compute(name="", work=whole.work, after=(INPUT,), memory=whole.memory),)

    def _gathers(self, occasion: Occasion) -> bool:
        """ZeRO-3 gathers for every pass that needs weights; below, what the last step updated may
        come with the first one."""
        if not self._sharded or occasion.kind == "W":
            return False
        hidden = self.job.stack.overlap_gather and occasion.kind == "F" and occasion.first
        return self.job.plan.zero >= 3 or hidden

    def _reduces(self, occasion: Occasion) -> bool:
        return self._sharded and self.job.plan.zero >= 2 and occasion.kind in ("B", "W")

    def _overlaps(self, occasion: Occasion) -> bool:
        return self._replicated and self.job.stack.overlap_gradients and occasion.last

    def _pieces(self, occasion: Occasion) -> Iterator[Piece]:
        """The blocks of a pass in its order, the exchange with its neighbours at both ends."""
        chunk = self.chunks[occasion.chunk]
        works = self._works(chunk, occasion)
        uses = self._uses[occasion.chunk].of(occasion)
        kinds = chunk.kinds if occasion.kind == "F" else chunk.kinds[::-1]
        for kind, work, use in zip(kinds, works, uses, strict=True):
            yield Piece(self.job.block(kind), work, use)

    def _works(self, chunk: Chunk, occasion: Occasion) -> list[Work]:
        job, kind = self.job, occasion.kind
        kinds = chunk.kinds if kind == "F" else chunk.kinds[::-1]
        works = [job.work(name, kind) for name in kinds]
        if kind == "W":
            return works
        ends = (self.first, self.last) if kind == "F" else (self.last, self.first)
        before = () if ends[0][occasion.chunk] else unpacked(job)
        behind = () if ends[1][occasion.chunk] else packed(job)
        stall = job.stall if kind == "F" else 0.0
        if before or stall:
            works[0] = Work(name=works[0].name, items=(*before, *with_host((works[0],), stall)))
        if behind:
            works[-1] = Work(name=works[-1].name, items=(works[-1], *behind))
        return works
