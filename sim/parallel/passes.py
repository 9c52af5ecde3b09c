"""The compute operations of a stage's passes, whole or layer by layer, with what they send."""

from collections.abc import Sequence
from typing import Literal

from sim.model.kernels import MemoryBound
from sim.parallel import gradients
from sim.parallel.balance import Chunk
from sim.parallel.exchange import name_of
from sim.parallel.pipeline import Pass
from sim.parallel.sharded import Pieces, sharded_pass
from sim.parallel.work import Items, Job, backward_pieces, forward_pieces, join, with_host
from sim.program import Collective, Communicate, Compute, Operation, Segment, Work


class Passes:
    """Emits the operations of each pass of one stage; builds each chunk's work once."""

    def __init__(self, job: Job, stage: int, order: Sequence[Pass]) -> None:
        self.job, self.chunks = job, job.chunks[stage]
        self._pieces: dict[tuple[str, int], Pieces] = {}
        self._works: dict[tuple[str, int], Work] = {}
        self._last_backward = {one.chunk: one for one in order if one.phase == "B"}
        self._before: tuple[str, ...] = ()
        self.reductions: list[str] = []

    def __call__(self, one: Pass, after: tuple[str, ...]) -> list[Operation]:
        done = self._operations(one, after)
        communications = [op.name for op in done if isinstance(op, Communicate)]
        # The optimizer waits for the last of them; their stream is in order.
        self.reductions = communications[-1:] or self.reductions
        self._before = tuple(op.name for op in done if isinstance(op, Compute))[-2:]
        return done

    def _operations(self, one: Pass, after: tuple[str, ...]) -> list[Operation]:
        gathers = self._needs_weights(one)
        if gathers or self._shards_gradients:
            return sharded_pass(
                self.job, one, name_of(one), after, self._cut(one),
                gathers=gathers, reduces=self._shards_gradients, before=self._before,
            )  # fmt: skip
        compute = Compute(
            name=name_of(one),
            work=self._work(one),
            after=after,
            phase=one.phase,
            chunk=one.chunk,
            microbatch=one.microbatch,
        )
        if self._releases_gradients(one):
            return gradients.overlapped(self.job, self._cut(one), compute)
        return [compute]

    @property
    def _replicated(self) -> bool:
        return self.job.plan.copies > 1

    @property
    def _shards_gradients(self) -> bool:
        return self.job.plan.zero >= 2 and self._replicated

    def _needs_weights(self, one: Pass) -> bool:
        """ZeRO-3 gathers for every pass; below, what the last step updated comes with the first."""
        if self.job.plan.zero >= 3:
            return self._replicated
        hidden = self.job.plan.zero > 0 and self.job.stack.overlap_gather and self._replicated
        return hidden and one.phase == "F" and one.microbatch == 0

    def _releases_gradients(self, one: Pass) -> bool:
        overlap = self.job.stack.overlap_gradients and self.job.plan.copies > 1
        return overlap and self._last_backward.get(one.chunk) == one

    def _cut(self, one: Pass) -> Pieces:
        """A pass in pieces, each with its parameters."""
        key = (one.phase, one.chunk)
        if key not in self._pieces:
            cut = backward_pieces if one.phase == "B" else forward_pieces
            chunk = self.chunks[one.chunk]
            self._pieces[key] = _dressed(self.job, chunk, one, cut(self.job, chunk))
        return self._pieces[key]

    def _work(self, one: Pass) -> Work:
        key = (one.phase, one.chunk)
        if key not in self._works:
            name = "forward" if one.phase == "F" else "backward"
            self._works[key] = join((work for work, _ in self._cut(one)), name=name)
        return self._works[key]


def boundary_bytes(job: Job) -> float:
    """Bytes of what one stage hands to the next, per rank and microbatch: the activations, cut
    over tensor ranks where the stack scatters them (Narayanan et al. 2021, section 4.1) or they
    are sharded."""
    plan, model = job.plan, job.model
    whole = plan.microbatch * model.seq * model.hidden * job.stack.weight_bytes(plan.precision)
    return whole / (plan.tp if _scattered(job) else 1) / plan.cp


def sent_bytes(job: Job) -> float:
    """The same as they cross the network: compressed where the plan says so."""
    whole, width = boundary_bytes(job), job.stack.weight_bytes(job.plan.precision)
    activations = job.plan.activations
    return whole if activations is None else activations.bytes(whole / width, width)


def _scattered(job: Job) -> bool:
    return job.plan.sequence_parallel or (job.stack.scatter_gather and job.plan.tp > 1)


def _dressed(job: Job, chunk: Chunk, one: Pass, pieces: Pieces) -> Pieces:
    """A pass with what surrounds its layers: the stall of an allocator short of memory, gathering
    and decoding what it receives in front, encoding what it sends behind."""
    ends = (chunk.embedding, chunk.head) if one.phase == "F" else (chunk.head, chunk.embedding)
    before: Items = () if ends[0] else (*_gather_boundary(job), *_coding(job, "decode"))
    behind: Items = () if ends[1] else _coding(job, "encode")
    dressed = [(work.items, count) for work, count in pieces]
    items, count = dressed[0]
    if one.phase == "F" and job.stall:
        items = with_host(items, job.stall)
    dressed[0] = ((*before, *items), count)
    items, count = dressed[-1]
    dressed[-1] = ((*items, *behind), count)
    name = "forward" if one.phase == "F" else "backward"
    return [(Work(name=name, items=items), count) for items, count in dressed]


def _coding(job: Job, way: Literal["encode", "decode"]) -> Items:
    """Encoding or decoding compressed activations."""
    activations = job.plan.activations
    if activations is None or job.plan.pp == 1:
        return ()
    elements = boundary_bytes(job) / job.stack.weight_bytes(job.plan.precision)
    moved = activations.encode_bytes if way == "encode" else activations.decode_bytes
    kernel = MemoryBound(name="compression", bytes=moved(elements))
    launch, device = job.stack.launch_forward, job.time(kernel)
    return (
        Segment(
            name=f"{way} activations",
            cause="compression",
            device=device,
            host=launch,
            lead=launch + device,
        ),
    )


def _gather_boundary(job: Job) -> Items:
    """Tensor-parallel peers received a share each and need the whole."""
    if job.plan.sequence_parallel or not _scattered(job):
        return ()
    call = Collective(
        kind="all_gather",
        axes=("tp",),
        bytes=boundary_bytes(job) * job.plan.tp,
        name="gather boundary",
        cause="tensor communication",
    )
    return (call,)
