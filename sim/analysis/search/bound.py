"""Lower bounds of a step's time, at a fraction of the cost of evaluating it.

The first bound needs only the pipeline, before any program is written. Each stage waits until the
first microbatch has come forward to the stage's first chunk. Then all passes of all microbatches
take their seconds. Last, the final gradient travels back to the first chunk of the model; only
passes of kind W can overlap this journey.

The second bound needs a program: every stream must carry all collectives of its passes. Messages,
the host and operations after the passes only make steps longer than both bounds.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import NamedTuple

from sim.engine.replay.play import FoldedMachine
from sim.engine.transfers import RankTransfers
from sim.parallel import schedule as schedules
from sim.parallel.job import Chunk, Job, Slot
from sim.program.memory import added
from sim.program.operations import Collective, Communicate, PassOps, Work
from sim.program.program import Program
from sim.program.schedule import Kind


class ChunkSeconds(NamedTuple):
    """Seconds of one microbatch in a chunk. They are given for the forward pass, for the backward
    pass until its gradient is handed on, and for the rest of the backward pass."""

    forward: float
    back: float
    behind: float


class PipelineBounds:
    """The first bounds of jobs on one mesh, from the costs that a machine gives each stage.

    Stages that take the same time for the `probe` (collectives on the same links) share results.
    """

    def __init__(self, machine: FoldedMachine, probe: Work) -> None:
        self._machine = machine
        first: dict[object, int] = {}
        calls = tuple(probe.every_call())
        self._like = [
            first.setdefault(machine.asked(stage, calls), stage)
            for stage in range(len(machine.costs))
        ]
        self._known: dict[tuple[object, ...], ChunkSeconds] = {}
        self._rows: dict[tuple[object, ...], tuple[object, list[ChunkSeconds]]] = {}

    def seconds(self, job: Job) -> float:
        """Return a lower bound of the job's step time for any order of passes."""
        plan = job.plan
        splits = plan.pp > 1 and schedules.entry(plan.pipeline).splits_backward
        pieces = self._pieces(job, splits=splits)
        # Filling and draining may overlap other steps.
        apart = (splits and job.stack.post_validation) or plan.versions(0)
        fill = [0.0, *accumulate(0.0 if apart else piece.forward for piece in pieces)]
        drain = [0.0, *accumulate(0.0 if apart else piece.back for piece in pieces)]
        bounds = []
        for placed in plan.pieces:
            handed = sum(pieces[piece].forward + pieces[piece].back for piece in placed)
            behind = sum(pieces[piece].behind for piece in placed)
            first, count = min(placed), plan.microbatches * plan.cuts // (plan.pp * plan.chunks)
            bounds.append(fill[first] + count * handed + max(count * behind, drain[first]))
        return max(bounds)

    def _pieces(self, job: Job, *, splits: bool) -> list[ChunkSeconds]:
        """Return the seconds of the model's pieces in order. They are remembered by the identity of
        the chunks, since schedules with equal cuts share the chunks. The chunks are kept as well,
        so that no other object gets their identity."""
        key = id(job.chunks), job.workload, splits
        if key not in self._rows:
            chunks = {
                piece: self._chunk(job, stage, job.chunks[stage][chunk], splits=splits)
                for stage, placed in enumerate(job.plan.pieces)
                for chunk, piece in enumerate(placed)
            }
            self._rows[key] = job.chunks, [chunks[piece] for piece in range(len(chunks))]
        return self._rows[key][1]

    def _chunk(self, job: Job, stage: int, chunk: Chunk, *, splits: bool) -> ChunkSeconds:
        key = job.workload, chunk, splits, self._like[stage]
        if key not in self._known:
            forward, back, inputs = (
                self._device(job, self._like[stage], chunk, kind)
                for kind in ("F", "B", "I" if splits else "B")
            )
            weights = self._device(job, self._like[stage], chunk, "W") if splits else 0.0
            behind = max(min(back, inputs + weights) - min(back, inputs), 0.0)
            self._known[key] = ChunkSeconds(forward, min(back, inputs), behind)
        return self._known[key]

    def _device(self, job: Job, stage: int, chunk: Chunk, kind: Kind) -> float:
        """Return the device's seconds in one pass through a chunk."""
        return sum(
            float(times) * self._block(job, stage, slot, kind)
            for slot, times in Counter(chunk.slots).items()
        )

    def _block(self, job: Job, stage: int, slot: Slot, kind: Kind) -> float:
        """Return the device's seconds in a block; stages with equal costs share the result."""
        block, again, words = slot
        work, costs = job.work(block, kind, again, words), self._machine.costs[stage]
        asked = self._machine.asked(stage, work.every_call())
        key = "device", job.workload, slot, kind, costs.slowdown, asked
        return job.known.memo(key, lambda: costs.of(work).duration.device)


class StreamBounds:
    """The second bounds of programs; `machines` returns a program's machine, which has costs."""

    def __init__(self, machines: Callable[[Program], FoldedMachine]) -> None:
        self._machines = machines
        self._known: dict[tuple[int, ...], tuple[PassOps, RankTransfers, Mapping[str, float]]] = {}

    def seconds(self, program: Program, microbatches: int) -> float:
        """Return a lower bound of this program's step time with `microbatches` microbatches. The
        program may be a short form, written for fewer microbatches. First and last passes are left
        out."""
        first = {
            stage_program: stage
            for stage, stage_program in reversed(list(enumerate(program.stages)))
        }
        longest, desks = 0.0, self._machines(program).desks
        for stage_program, stage in first.items():
            middle: dict[str, list[Mapping[str, float]]] = {"F": [], "B": [], "IW": []}
            for variant, ops in stage_program.ops_by_variant.items():
                if not (variant.first or variant.last):
                    way = variant.kind if variant.kind in middle else "IW"
                    middle[way].append(self._streams(ops, desks[stage], stage))
            back = [added(*middle[way]) for way in ("B", "IW") if middle[way]]
            # Where some backward passes are split and others are whole, the shorter time counts.
            least = {s: min(row.get(s, 0.0) for row in back) for row in back for s in row}
            longest = max(longest, *added(*middle["F"], least).values(), 0.0)
        return longest * max(microbatches // len(program.schedule.ways) - 2, 0)

    def _streams(self, ops: PassOps, desk: RankTransfers, stage: int) -> Mapping[str, float]:
        """Return the seconds of a pass's communication on each stream."""
        key = id(ops), id(desk), stage
        if key not in self._known:
            streams: dict[str, float] = defaultdict(float)
            for operation in ops:
                if isinstance(operation, Communicate):
                    seconds = (
                        desk.traffic(call, stage).alone
                        for call in operation.calls
                        if isinstance(call, Collective)
                    )
                    streams[operation.stream] += max(seconds, default=0.0)
            self._known[key] = ops, desk, streams
        return self._known[key][-1]
