"""One mesh of a space: its layouts as candidates, with shared results computed once."""

from functools import cached_property, partial

import numpy as np

from sim.analysis.search import layouts
from sim.analysis.search.bound import PipelineBounds, StreamBounds
from sim.analysis.search.evaluate import Candidate, Evaluator, pipelining
from sim.analysis.search.least_memory import least_of_passes
from sim.analysis.search.space import Space
from sim.collectives.libraries import backend as backends
from sim.config.checked import replaced
from sim.config.errors import InputError
from sim.engine.machine import Machine
from sim.engine.replay.play import FoldedMachine
from sim.parallel.chunks import chunks_of
from sim.parallel.job import Job, Known
from sim.parallel.memory import fragmented, resident
from sim.parallel.offload import host_memory
from sim.parallel.plan import Plan, with_checkpoints
from sim.parallel.schedule import searched
from sim.parallel.step import training_step
from sim.parallel.undrained import check_versions
from sim.program.memory_levels import Floats, peaks
from sim.program.operations import Work
from sim.program.program import Program
from sim.scenario.setup import ordered


class MeshLayouts:
    """The layouts on a mesh with the sizes of plan `sizes`. Meshes that differ only in their stages
    share `known`."""

    def __init__(self, space: Space, sizes: Plan, known: Known) -> None:
        self.space, self._known, self.evaluator = space, known, Evaluator()
        topology = space.topology
        self._machine = Machine(topology, backends.load(topology.backend))
        self.capacity = topology.device.usable_memory
        model, attends = space.model, space.stack.attention
        self._model = model if attends else model.unfused()
        self._jobs: dict[int, tuple[Plan, Job]] = {}
        self._sizes = sizes
        self._activations: dict[tuple[object, ...], Floats | float] = {}
        self._stays: dict[tuple[object, ...], Floats] = {}

    @property
    def suited(self) -> list[Plan]:
        """The plans that can divide the model, with all choices of passes made."""
        return self._tried[0]

    @property
    def refusals(self) -> list[InputError]:
        """Why the other plans cannot divide the model, one error for each plan."""
        return self._tried[1]

    @cached_property
    def _tried(self) -> tuple[list[Plan], list[InputError]]:
        suited, refusals = list[Plan](), list[InputError]()
        for plan in layouts.passes(self.space, self._sizes):
            try:
                self._check(plan)
                suited.append(plan)
            except InputError as error:
                refusals.append(error)
        return suited, refusals

    @cached_property
    def passes(self) -> list[tuple[float, Plan]]:
        """All suited plans with lower bounds of their step times (s), the shortest bound first."""
        if not self.suited:
            return []
        job, kinds = self._job(self.suited[0]), dict.fromkeys(self._model.kinds)
        probe = Work(name="probe", items=tuple(job.work(kind, "F") for kind in kinds))
        bounds = PipelineBounds(self._folded, probe)
        bounded = [(bounds.seconds(self._job(plan)), plan) for plan in self.suited]
        return sorted(bounded, key=lambda row: row[0])

    def _check(self, plan: Plan) -> None:
        """Raise `InputError` unless the plan can divide the model."""
        if plan.versions(0):
            check_versions(self._job(plan), where="plan")
        for kind in dict.fromkeys(self._model.kinds):
            self._job(plan).block(kind)

    def candidate(self, plan: Plan) -> Candidate | None:
        """Return a layout with its program; None where it does not fit in memory."""
        job = ordered(self._job(plan), self._machine)
        order = pipelining(job)
        program = training_step(job, order.schedule)
        needed = self._memory(job, program)
        if needed > self.capacity or not self._host_holds(job):
            return None
        return Candidate(job, self._machine, order, program, needed)

    def _host_holds(self, job: Job) -> bool:
        topology = self.space.topology
        return topology.host is None or host_memory(job, topology) <= topology.host.memory

    def stream_bound(self, candidate: Candidate) -> float:
        """Return a lower bound of the layout's step time (s)."""
        return self._streams.seconds(candidate.program, candidate.job.plan.microbatches)

    def least_of_passes(self, plan: Plan) -> float:
        """Return a lower bound of the memory of all layouts that run these passes."""
        return 0.0 if "offload" in self.space.only else float(np.max(self._taken_by_passes(plan)))

    def may_fit(self, plan: Plan) -> bool:
        """Return whether the bounds allow that a layout with these passes fits."""
        return self.least_of_passes(plan) <= self.capacity and any(
            self.least_memory(layout) <= self.capacity
            for layout in layouts.layouts(self.space, plan)
        )

    def least_memory(self, plan: Plan) -> float:
        """Return a lower bound of the fullest stage's memory: bytes that stay from step to step,
        and bytes of the passes without their gradients. If the order of passes is still to be
        searched for, passes count no bytes."""
        passes = _passes_key(plan)
        states = plan.zero, plan.reshard, plan.no_sync, plan.dp_replicate
        key = passes, *states, plan.offload, plan.moments
        if key not in self._stays:
            job = self._job(plan)
            stages = (
                self._known.memo(
                    ("stays", job.key, chunks, plan.versions(stage)), partial(_resident, job, stage)
                )
                for stage, chunks in enumerate(job.chunks)
            )
            self._stays[key] = np.array(list(stages))
        return float((self._stays[key] + self._taken_by_passes(plan)).max())

    def _taken_by_passes(self, plan: Plan) -> Floats | float:
        """Return the memory of the passes on each stage, without their gradients."""
        key = _passes_key(plan)
        if key not in self._activations:
            job = self._job(plan)
            apart = job.plan.offload.activations or (plan.pp > 1 and searched(plan.pipeline))
            schedule = None if apart else pipelining(job).schedule
            self._activations[key] = 0.0 if schedule is None else least_of_passes(job, schedule)
        return self._activations[key]

    def _job(self, plan: Plan) -> Job:
        """Return the job of a plan. Job and plan are remembered by the plan's identity."""
        if id(plan) not in self._jobs:
            self._jobs[id(plan)] = plan, self._made(plan)
        return self._jobs[id(plan)][1]

    def _made(self, plan: Plan) -> Job:
        space = self.space
        cut = plan.pp, plan.chunks, plan.layers, plan.pieces
        # Where layers differ, the costs of their passes decide the cuts between stages.
        key = "chunks", *cut, plan.microbatch, plan.recompute, plan.data_parallel, plan.zero
        device = space.topology.device
        offload = with_checkpoints(plan.offload, space.stack.checkpointing, plan.recompute)
        return Job(
            model=self._model,
            plan=plan if offload == plan.offload else replaced(plan, offload=offload),
            stack=space.stack,
            device=device,
            chunks=self._known.memo(key, lambda: chunks_of(self._model, space.stack, plan, device)),
            checks=space.topology.checks,
            node=space.topology.gpus_per_node,
            known=self._known,
        )

    @cached_property
    def _folded(self) -> FoldedMachine:
        """The machine, folded for this mesh, which knows the costs of passes."""
        job = self._job(self.suited[0])
        return self.evaluator.machine(training_step(job, pipelining(job).schedule), self._machine)

    @cached_property
    def _streams(self) -> StreamBounds:
        return StreamBounds(lambda program: self.evaluator.machine(program, self._machine))

    def _memory(self, job: Job, program: Program) -> float:
        """Return the bytes that the fullest stage needs, with the allocator's fragments."""
        return self._known.memo(
            ("memory", program.schedule, program.stages),
            lambda: float((peaks(program) + fragmented(job)).max()),
        )


def _passes_key(plan: Plan) -> tuple[object, ...]:
    """Return a key that is equal for layouts of a mesh that run the same passes."""
    return (
        plan.microbatch,
        plan.recompute,
        plan.sequence_parallel,
        plan.context,
        plan.offload.activations,
        plan.schedule,
        plan.interleave,
        plan.layers,
        plan.dispatcher,
        plan.overlap_experts,
    )


def _resident(job: Job, stage: int) -> float:
    return sum(resident(job, stage).values())
