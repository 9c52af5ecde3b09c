"""Every layout of a space that fits in memory, as a job that is ready to be evaluated."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sim.collectives.libraries import backend as backends
from sim.engine.machine import Machine
from sim.parallel.chunks import chunks_of
from sim.parallel.job import Job, Known
from sim.parallel.memory import fragmented, stall
from sim.parallel.plan import Plan
from sim.parallel.step import training_step
from sim.program.memory_levels import peaks
from sim.search.choices import OTHERS, SIZES, Choice
from sim.search.evaluate import Candidate, pipelining
from sim.search.space import Space


@dataclass(slots=True)
class Pruned:
    """How many layouts were never evaluated, and why."""

    divisibility: int = 0
    memory: int = 0

    def add(self, other: "Pruned") -> None:
        """Count those of another part of the space too."""
        self.divisibility += other.divisibility
        self.memory += other.memory


def meshes(space: Space, pruned: Pruned) -> list[Plan]:
    """Plans of which only the sizes of the mesh are chosen; `pruned` counts those that the batch
    cannot be divided among."""
    start = Plan(global_batch=space.global_batch, precision=space.precision)
    chosen = list(_chosen(space, [start], SIZES))
    divided = [plan for plan in chosen if space.global_batch % plan.data_parallel == 0]
    pruned.divisibility += len(chosen) - len(divided)
    return divided


def plans(space: Space, mesh: Plan) -> Iterator[Plan]:
    """All layouts on a mesh."""
    return _chosen(space, [mesh], OTHERS)


def _chosen(space: Space, start: Sequence[Plan], choices: Sequence[Choice]) -> Iterator[Plan]:
    if not choices:
        yield from start
        return
    for plan in start:
        for one in choices[0].plans(space, plan):
            yield from _chosen(space, [one], choices[1:])


class Builder:
    """Makes plans of one mesh into candidates; what they share is worked out once."""

    def __init__(self, space: Space) -> None:
        self.space, self.known = space, Known()
        topology = space.topology
        self.machine = Machine(topology, backends.load(topology.backend))
        self.capacity = topology.device.usable_memory
        model, attends = space.model, space.stack.attention
        self.model = model if attends else replace(model, attention="standard")

    def candidate(self, plan: Plan) -> Candidate | None:
        """A plan with its program, None where it does not fit in memory. Raises `InputError`."""
        space = self.space
        key = "chunks", plan.pp, plan.chunks, plan.layers, plan.pieces
        job = Job(
            model=self.model,
            plan=plan,
            stack=space.stack,
            device=space.topology.device,
            chunks=self.known.once(key, lambda: chunks_of(self.model, space.stack, plan)),
            nodes=space.topology.nodes,
            known=self.known,
        )
        order = pipelining(job)
        program = training_step(job, order.schedule)
        taken = peaks(program)
        lost = stall(space.stack, job.device, float(taken.max()))
        if lost:
            job = replace(job, stall=lost)
            program = training_step(job, order.schedule)
        if (taken + fragmented(job)).max() > self.capacity:
            return None
        return Candidate(job, self.machine, order, program, float(taken.max()))
