"""Which layouts there are: every plan whose sizes divide and whose ranks fit in memory."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import cast

from sim.config.errors import InputError
from sim.hardware import stack as stacks
from sim.hardware.cluster import topology as topologies
from sim.hardware.cluster.topology import Topology
from sim.hardware.stack import Stack
from sim.model import transformer as models
from sim.model.kernels import LayerWork, Precision
from sim.model.transformer import Transformer
from sim.parallel.footprint import footprint
from sim.parallel.memory import Memory
from sim.parallel.plan import Plan, Recompute, Schedule
from sim.parallel.work import Job
from sim.scenario.setup import Setup, assemble

# Tensor-parallel peers are neighbours in all of them, as every framework places them.
ORDERS = ("tp-cp-dp-pp", "tp-cp-pp-dp")
_RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "full")


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """What is searched: a job of given size on given hardware, and how far each choice goes.

    Tensor parallelism goes up to `max_tp` (a node's devices by default), a microbatch up to
    `max_microbatch` sequences, a stage holds up to `max_interleave` chunks. Of n processes that
    search together, number i looks at its `share` (i, n) of the mesh sizes.
    """

    model: Transformer
    topology: Topology
    stack: Stack
    global_batch: int
    precision: Precision = "bf16"
    max_tp: int = 0
    max_microbatch: int = 16
    max_interleave: int = 12
    share: tuple[int, int] = (0, 1)


def space(
    model: str,
    topology: str,
    *,
    gpus: int | None = None,
    global_batch: int,
    stack: str = "megatron-core",
    precision: str = "bf16",
    seq: int | None = None,
    max_tp: int | None = None,
) -> Space:
    """The space that names stand for. Raises `InputError`.

    >>> space("llama2-7b", "dgx-h100-ndr", gpus=16, global_batch=64).topology.nodes
    2
    """
    cluster = topologies.load(topology)
    cluster = cluster.with_gpus(gpus) if gpus else cluster
    cluster.device.peak_rate(precision)  # refuses what the device does not have
    trained = models.load(model)
    return Space(
        model=replace(trained, seq=seq) if seq else trained,
        topology=cluster,
        stack=stacks.load(stack),
        global_batch=global_batch,
        precision=cast(Precision, precision),
        max_tp=max_tp or 0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A layout that fits, with the memory of its fullest rank."""

    setup: Setup
    memory: Memory

    @property
    def plan(self) -> Plan:
        return self.setup.job.plan


@dataclass(slots=True)
class Pruned:
    """How many layouts were never simulated, and why."""

    divisibility: int = 0
    memory: int = 0


class Works:
    """Each distinct layer's work once: it depends on four choices of many."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], tuple[LayerWork, LayerWork, LayerWork]] = {}

    def share(self, job: Job) -> None:
        """Give a job the works that an equal job has computed before."""
        plan = job.plan
        key = (plan.microbatch, plan.tp, plan.sequence_parallel, plan.recompute, plan.pp > 1)
        if key not in self._known:
            self._known[key] = job.layer, job.embedding, job.head
        own = vars(job)  # where cached_property keeps what it has computed
        own["layer"], own["embedding"], own["head"] = self._known[key]


def candidates(space: Space, pruned: Pruned) -> Iterator[Candidate]:
    """Every layout that divides and fits; `pruned` counts the others."""
    works = Works()
    capacity = space.topology.device.usable_memory
    for plan in plans(space, pruned):
        orders = ORDERS if plan.pp > 1 and plan.replicas > 1 else ORDERS[:1]
        try:
            setup = assembled(space, plan)
            works.share(setup.job)
        except InputError:
            pruned.divisibility += len(orders)
            continue
        worst = fullest(setup.job, capacity)
        if worst is None:
            pruned.memory += len(orders)
            continue
        for order in orders:
            job = replace(setup.job, plan=replace(setup.job.plan, order=order))
            works.share(job)
            yield Candidate(setup=replace(setup, job=job), memory=worst)


def assembled(space: Space, plan: Plan) -> Setup:
    """A plan of the space on its machine. Raises `InputError` where they do not fit together."""
    return assemble(
        "sim plan", model=space.model, stack=space.stack, topology=space.topology, plan=plan
    )


def fullest(job: Job, capacity: float) -> Memory | None:
    """The memory of the rank that reserves most, or None as soon as one has not enough.

    Of stages with equal chunks the first has the most microbatches in flight, so that the others
    need no look.
    """
    distinct = {chunks: stage for stage, chunks in reversed(list(enumerate(job.chunks)))}
    found: list[Memory] = []
    for stage in sorted(distinct.values()):
        found.append(footprint(job, stage))
        if not found[-1].fits(capacity):
            return None
    return max(found, key=lambda memory: memory.reserved)


def plans(space: Space, pruned: Pruned) -> Iterator[Plan]:
    """Every combination of the choices whose sizes divide, as far as they are this share's."""
    share, shares = space.share
    lots: dict[tuple[int, int], int] = {}
    for tp, pp in product(_tensor(space), _stages(space)):
        dp, left = divmod(space.topology.gpus, tp * pp)
        if left or space.global_batch % max(dp, 1) or not _tensor_divides(space.model, tp):
            pruned.divisibility += share == 0
            continue
        for microbatch in divisors(space.global_batch // dp, space.max_microbatch):
            start = Plan(
                global_batch=space.global_batch,
                microbatch=microbatch,
                tp=tp,
                pp=pp,
                dp=dp,
                precision=space.precision,
            )
            # Layouts with pipelines of one shape stay together.
            if lots.setdefault((pp, start.microbatches), len(lots)) % shares == share:
                yield from _ways(space, start)


def _ways(space: Space, plan: Plan) -> Iterator[Plan]:
    """The choices that leave the sizes of the mesh alone."""
    zeros = (0, 1) if plan.replicas > 1 else (0,)
    sequence = (False, True) if plan.tp > 1 else (False,)
    for schedule, chunks in _schedules(space, plan):
        for zero, recompute, sp in product(zeros, _RECOMPUTE, sequence):
            yield replace(
                plan,
                schedule=schedule,
                interleave=chunks,
                zero=zero,
                recompute=recompute,
                sequence_parallel=sp,
            )


def _schedules(space: Space, plan: Plan) -> Iterator[tuple[Schedule, int]]:
    """1F1B, GPipe, and the interleaved schedule with every number of chunks that divides."""
    if plan.pp == 1:
        yield "none", 1
        return
    yield "1f1b", 1
    # GPipe keeps every microbatch's activations; where 1F1B keeps as many they are the same.
    if plan.microbatches > plan.pp:
        yield "gpipe", 1
    if plan.microbatches % plan.pp == 0:
        for chunks in range(2, min(space.model.layers // plan.pp, space.max_interleave) + 1):
            if _even(space, plan.pp * chunks):
                yield "interleaved", chunks


def _tensor(space: Space) -> list[int]:
    most = space.max_tp or max(space.topology.gpus_per_node, 8)
    return divisors(space.topology.gpus, most)


def _stages(space: Space) -> list[int]:
    """Pipeline depths over which the layers can be spread."""
    return [pp for pp in divisors(space.topology.gpus, space.model.layers) if _even(space, pp)]


def _even(space: Space, pieces: int) -> bool:
    """Even, or with one layer fewer on both ends; stacks that balance by cost take any number."""
    layers = space.model.layers
    return layers % pieces == 0 or (layers + 2) % pieces == 0 or space.stack.balance != "even"


def _tensor_divides(model: Transformer, tp: int) -> bool:
    return model.heads % tp == 0 and model.ffn % tp == 0


def divisors(number: int, most: int) -> list[int]:
    """All divisors up to `most`, ascending.

    >>> divisors(24, 8)
    [1, 2, 3, 4, 6, 8]
    """
    return [one for one in range(1, min(number, most) + 1) if number % one == 0]
