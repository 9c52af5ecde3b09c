"""How does a played loop become an answer?"""

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import fmean, pstdev

from sim.config.units import HOUR
from sim.engine.timeline import Role
from sim.jobs.reinforcement.answer import Pool, ReinforcementAnswer, StepRow
from sim.jobs.reinforcement.loop import PHASES, UPDATE, WEIGHTS, Loop, Step
from sim.jobs.reinforcement.samples import Sample
from sim.jobs.reinforcement.setup import ReinforcementSetup
from sim.program.causes import Cause
from sim.results.answer import Inputs, said_of

_TAIL = 0.9  # share of a step's answers; answers that end after them are its tail


def outcome(setup: ReinforcementSetup, loop: Loop) -> ReinforcementAnswer:
    """Return the answer of a played loop."""
    plan, counted = setup.plan, loop.steps[setup.plan.warmup :]
    seconds = [step.end - step.begin for step in counted]
    rows = tuple(_row(step, plan.sample) for step in loop.steps)
    shown = rows[plan.warmup :]
    samples = [s for step in counted for group in step.groups for s in group.samples]
    step_time = fmean(seconds)
    tokens = plan.sample * sum(sample.tokens for sample in samples)
    counts = loop.rollouts.counts
    written = counts.used + counts.lost
    ages = Counter(
        step.number - sample.oldest
        for step in counted for group in step.groups for sample in group.samples
    )  # fmt: skip
    topology = setup.machine.topology
    price = topology.price
    misfit = setup.misfit()
    trainer = Role(index=0, name="trainer", stage=0, ranks=len(setup.trainer), first_rank=0)
    return ReinforcementAnswer(
        scenario=setup.name,
        inputs=inputs_of(setup),
        fits=not misfit,
        events=loop.cluster.events,
        wall_seconds=0.0,
        warnings=tuple(_warnings(setup, loop, misfit)),
        timeline=loop.cluster.timeline([trainer], loop.cluster.now),
        mode=plan.mode,
        placement=plan.placement,
        step_time=step_time,
        spread=pstdev(seconds),
        spent={str(cause): _mean(counted, cause) for cause in PHASES},
        generation=fmean(row.generation for row in shown),
        tail=fmean(row.tail for row in shown),
        samples=plan.prompts * plan.answers,
        samples_per_second=plan.prompts * plan.answers / step_time,
        tokens_per_second=tokens / sum(seconds),
        staleness={str(age): ages[age] / len(samples) for age in sorted(ages)},
        mixed=sum(len(sample.versions) > 1 for sample in samples) / len(samples),
        lost=counts.lost / written if written else 0.0,
        cut=sum(sample.length >= plan.answer.cap for sample in samples) / len(samples),
        mean_length=tokens / len(samples) / plan.sample,
        dollars=price.hour / HOUR * topology.gpus * step_time if price else None,
        weights={"bytes": setup.weights, "seconds": _mean(counted, WEIGHTS)},
        pools=tuple(_pools(setup, loop, counted, samples)),
        steps=rows,
        running=tuple((at, plan.sample * level) for at, level in loop.rollouts.levels),
    )


def inputs_of(setup: ReinforcementSetup) -> Inputs:
    """The inputs of a setup, for its answer."""
    topology, training = setup.machine.topology, setup.training
    return Inputs(
        model=setup.model,
        cluster=topology.name,
        device=topology.device.name,
        gpus=topology.gpus,
        stack=f"{training.stack.name}, {setup.engine.name}",
        precision=training.plan.precision,
        optimizer=training.plan.optimizer,
        batch=training.plan.global_batch,
        plan=said_of(training.plan),
        change=dict(setup.change),
        price=str(topology.price or ""),
        notes=tuple(_notes(setup)),
    )


def _notes(setup: ReinforcementSetup) -> Iterator[str]:
    """Yield sentences about assumptions."""
    yield from setup.training.model.notes
    if any(slow.link for slow in setup.scenario.straggler):
        yield "a slow link slows training and the transfer of weights, but not the servers' steps"
    yield f"answers are packed into rows of at most {setup.training.row:,} tokens"
    if setup.plan.sample > 1:
        yield f"of every {setup.plan.sample} servers with their prompts, a single server is played"
    if setup.plan.reference:
        yield "the reference's weights are assumed to be on the trainer's GPUs when needed"


def _row(step: Step, each: int) -> StepRow:
    """The row of a step; each played answer stands for `each` answers."""
    samples = [sample for group in step.groups for sample in group.samples]
    ends = sorted(sample.written for sample in samples)
    begun = min(group.begun for group in step.groups)
    most = ends[min(int(_TAIL * len(ends)), len(ends) - 1)]
    return StepRow(
        number=step.number,
        begin=step.begin,
        seconds=step.end - step.begin,
        spent={str(cause): seconds for cause, seconds in step.spent.items()},
        generation=ends[-1] - begun,
        tail=ends[-1] - most,
        tokens=each * sum(sample.tokens for sample in samples),
        longest=max(sample.length for sample in samples),
        staleness=fmean(step.number - sample.oldest for sample in samples),
    )


def _mean(steps: Sequence[Step], cause: Cause) -> float:
    return fmean(step.spent.get(cause, 0.0) for step in steps)


def _pools(
    setup: ReinforcementSetup, loop: Loop, steps: Sequence[Step], samples: Sequence[Sample]
) -> Iterator[Pool]:
    """Yield the pools of the trainer and of the servers. If both share GPUs, the two pools are the
    same GPUs in two states."""
    span = steps[-1].end - steps[0].begin
    everything = loop.cluster.now
    working = sum(
        seconds
        for step in steps
        for cause, seconds in step.spent.items()
        if cause.kind == "compute"
    )
    updating = sum(step.spent.get(UPDATE, 0.0) for step in steps)
    each = setup.plan.sample
    learnt = each * sum(sample.tokens for sample in samples)
    written = each * sum(server.batch.tokens for server in loop.rollouts.servers)
    busy = each * sum(server.busy for server in loop.rollouts.servers)
    idle = 1.0 - working / span, 1.0 - busy / (everything * setup.servers)
    gpus = len(setup.trainer), setup.servers * setup.speed.layout.gpus
    writing = busy / setup.servers  # seconds that a server works
    rates = learnt / updating if updating else 0.0, written / writing if writing else 0.0
    for place, (name, parts) in enumerate(setup.held.items()):
        yield Pool(
            name=name, gpus=gpus[place], idle=idle[place], tokens_per_second=rates[place],
            held=parts, room=setup.training.room,
        )  # fmt: skip


def _warnings(setup: ReinforcementSetup, loop: Loop, misfit: str) -> Iterator[str]:
    if misfit:
        yield f"does not fit: {misfit}"
    preempted = setup.plan.sample * sum(s.batch.preemptions for s in loop.rollouts.servers)
    if preempted:
        yield f"{preempted:,} answers were dropped from a full cache and computed again"
    if loop.cluster.leaves_out_spans:
        yield "the timeline is cut: it has room for a part of the run"
