"""A job: a model, a plan, the stack that runs it and the device that executes it. Results for its
model, stack and device are computed once and kept (`Known`).
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from sim.config import reads
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.hardware.kernels.time import kernel_time
from sim.model.block import ALONE, Again, Block, block, operators_of
from sim.model.checkpointing import Rule
from sim.model.execution import Execution, ParameterGroup, Sharding, Words
from sim.model.kernels import Item, Kernel
from sim.model.kinds import is_layer
from sim.model.operators import Matrix, Operator, kernels_of
from sim.model.transformer import DECODER_INPUT
from sim.parallel.mesh import dividing
from sim.parallel.plan import EffectivePlan
from sim.parallel.segments import Items, blocked, segments
from sim.program.causes import COMPUTE, RECOMPUTE, Cause
from sim.program.memory import added
from sim.program.operations import Checks, Collective, Segment, Work
from sim.program.schedule import Kind, PassVariant, Places, Schedule

if TYPE_CHECKING:
    from sim.model.precision import Recipe
    from sim.parallel.loader import Loading

Key = tuple[object, ...]
Made = TypeVar("Made")
Slot = tuple[str, Again, Words]
_AGAIN: Words = "again"
HEAD = "head"


class Known:
    """Memoised results; jobs of one model, stack and device can share them."""

    def __init__(self) -> None:
        self._answers: dict[Key, Any] = {}
        self.read: reads.Reads = {}  # the input files that the results rest on

    def memo(self, key: Key, make: Callable[[], Made]) -> Made:
        """The result of `make`, computed once for each key; a key begins with its purpose."""
        if key not in self._answers:
            with reads.recorded() as read:
                self._answers[key] = make()
            self.read |= read
        made: Made = self._answers[key]
        return made

    def number(self, key: Key) -> int:
        """Return a number that is unique to a key."""
        return self.memo(("number", *key), lambda: len(self._answers))

    def __len__(self) -> int:
        return len(self._answers)


_KEPT, _MOST = 4, 20_000  # the most memos that are kept, and the most results in a memo
_asked: deque[tuple[tuple[object, ...], Known]] = deque(maxlen=_KEPT)


def known_of(*whose: object) -> Known:
    """Return the memo of a model, a stack and a device, from which points of a sweep take most
    results. A new memo replaces a memo that is too large or rests on files that have changed."""
    for asked, known in _asked:
        if asked == whose and len(known) < _MOST and reads.holds(known.read):
            reads.rest_on(known.read)
            return known
    _asked.appendleft((whose, Known()))
    return _asked[0][1]


@dataclass(frozen=True, slots=True)
class Chunk:
    """A contiguous piece of the model: the kinds of its blocks in order. `again` says how each
    block takes part in recomputation; if it is empty, each block is recomputed alone. `words` says
    how each block uses the word embedding; if it is empty, no block holds a copy for its stage."""

    kinds: tuple[str, ...]
    again: tuple[Again, ...] = ()
    words: tuple[Words, ...] = ()

    @property
    def layers(self) -> int:
        return sum(often for kind, often in Counter(self.kinds).items() if is_layer(kind))

    @property
    def slots(self) -> tuple[Slot, ...]:
        """Kind, part in recomputation and use of the word embedding of each block."""
        many = len(self.kinds)
        again, words = self.again or (ALONE,) * many, self.words or (_AGAIN,) * many
        return tuple(zip(self.kinds, again, words, strict=True))


@dataclass(frozen=True)
class Job(EffectivePlan):
    """`chunks` holds the pieces of the model on each stage, `order` the order of passes if it was
    searched for (`sim.engine.ordering`). Hosts do `checks` before collectives; a node has `node`
    ranks; `loading` is the loader that brings the samples, if any."""

    chunks: tuple[tuple[Chunk, ...], ...]
    order: Schedule | None = None
    checks: Checks | None = None
    node: int = 1
    loading: "Loading | None" = None
    known: Known = field(default_factory=Known, compare=False, repr=False)

    def defers(self, kind: str, variant: PassVariant) -> bool:
        """Whether weight gradients of a block are left out of a pass (`sim.parallel.deferred`)."""
        return self.plan.defer_embedding_wgrad_compute and kind == HEAD and variant.kind == "B"

    def blocks(self, chunk: Chunk) -> Iterator[Block]:
        """Return the blocks of a chunk in order: the description that all other code reads."""
        return (self.block(*slot) for slot in chunk.slots)

    def block(self, kind: str, again: Again = ALONE, words: Words = _AGAIN) -> Block:
        """Return a block of this kind, as one rank of this job runs it."""
        return self.known.memo(
            ("block", kind, again, words, self.workload),
            lambda: block(
                kind, replace(self.execution, words=words), self.rule, again, self._operators
            ),
        )

    def _operators(self, kind: str, run: Execution) -> list[Operator]:
        """Return the operators of a block, which do not depend on what is recomputed."""
        key = "operators", kind, run.words, self._microbatch
        return self.known.memo(key, lambda: operators_of(kind, run))

    @cached_property
    def rule(self) -> Rule:
        """The rule of recomputation in a layer."""
        return self.stack.checkpointing.rule(self.plan.recompute)

    @cached_property
    def execution(self) -> Execution:
        """A microbatch on one rank."""
        plan = self.plan
        later, bucketed = self._micro_steps
        ring, heads = self.sequence_axes
        return Execution(
            model=self.model,
            microbatch=plan.microbatch,
            sharding=Sharding(
                tp=plan.tp,
                sequence_parallel=plan.sequence_parallel,
                cp=plan.degree(dividing("sequence")),
                ep=plan.ep,
                etp=plan.etp,
                tensor=plan.split(["tp"]),
                context=plan.split(ring),
                ulysses=plan.degree(heads),
                exchanged=plan.split(heads),
                way=self.context,
                balanced=self.stack.balanced_context,
                experts=plan.split(["ep"]),
                expert_tensor=plan.split(["etp"]),
            ),
            precision="bf16" if self.recipe else plan.precision,
            recipe=self.recipe,
            lora=plan.lora,
            fusion=replace(self.host.fusion, user_buffers=self.user_buffers),
            stash=plan.stash,
            later=later,
            bucketed=bucketed,
            graphs=plan.cuda_graph,
            dispatcher=self.dispatcher,
            overlaps_shared=self.overlaps_shared,
        )

    @cached_property
    def recipe(self) -> "Recipe | None":
        """The recipe of linear layers, None at 16 bits and more. Raises `InputError`."""
        plan = self.plan
        found = self.known.memo(
            ("recipe", plan.precision, repr(plan.recipe)),
            lambda: self.stack.recipe(plan.precision, plan.recipe, where="plan, recipe"),
        )
        turns = self.device.transposes_operands
        if found:
            self.device.peak_rate(plan.precision)  # refuses a precision that the device lacks
        if found and found.scaled_by_tensor_cores and not self.device.scales_blocks:
            fault = f"{self.device.name} does not scale blocks as {found.name} does"
            raise InputError("plan, recipe", fault, "name another recipe, such as current-scaling")
        if found and plan.lora:
            found = replace(
                found, products=tuple(product for product in found.products if product != "wgrad")
            )
        return found and found.fitted(transposes=turns, sharded=plan.zero >= 3)

    @cached_property
    def workload(self) -> int:
        """A number that identifies the work of a job's blocks, among jobs of one model, stack and
        device."""
        key = "workload", self._microbatch, self.plan.recompute, self.checks, self.node
        return self.known.number(key)

    @cached_property
    def _microbatch(self) -> int:
        """A number that identifies the operators of a job's blocks."""
        plan = self.plan
        key = (
            "microbatch",
            plan.microbatch,
            self.execution.sharding,
            plan.dispatcher,
            self.user_buffers,
            plan.cuda_graph,
            self.overlaps_shared,
            plan.precision,
            self.recipe,
            plan.lora,
            plan.stash,
            *self._micro_steps,
        )
        return self.known.number(key)

    @cached_property
    def key(self) -> int:
        """A number that identifies a job's passes through a chunk; equal passes have equal keys."""
        plan = self.plan
        key = (
            "passes",
            self.workload,
            plan.zero,
            self.reshard,
            self.no_sync,
            self.reduces_last,
            self.prefetch,
            plan.offload,
            plan.optimizer,
            plan.moments,
            plan.activations,
            plan.gradients,
            plan.microbatches > 1,
            plan.microbatches * plan.defer_embedding_wgrad_compute,
            # The place of stages in the mesh matters only to checks, which count nodes.
            *((name, size) for name, size in plan.mesh.items() if name != "pp" or self.checks),
            plan.pp,
            self.embedding_holders,
        )
        return self.known.number(key)

    @cached_property
    def embedding_holders(self) -> tuple[int, ...]:
        """The stages that hold the word embedding: for inputs (also a decoder's), tied output
        layers or multi-token prediction. Empty if these stages hold the same pieces of the model,
        whose gradients are summed anyway.
        """
        embeds = None if self.model.hears else "embedding"
        return self._holders(lambda kind, words: kind == embeds or words != _AGAIN)

    @cached_property
    def position_holders(self) -> tuple[int, ...]:
        """The stages that hold the learned positions of an encoder, which its decoder shares."""
        if not self.model.decoder_seq or self.execution.shape.positions != "learned":
            return ()
        kinds = ("embedding", DECODER_INPUT)
        return self._holders(lambda kind, words: kind in kinds and words != _AGAIN)

    def _holders(self, holds: Callable[[str, Words], bool]) -> tuple[int, ...]:
        """Return the stages with a block for which `holds` is true; empty if all of these stages
        are copies of one another."""
        found = tuple(
            stage
            for stage, chunks in enumerate(self.chunks)
            if any(holds(kind, words) for chunk in chunks for kind, _, words in chunk.slots)
        )
        return () if not found or found == self.copies[found[0]] else found

    @cached_property
    def copies(self) -> tuple[tuple[int, ...], ...]:
        """For each stage, all stages that hold the same pieces of the model, itself included; empty
        if it alone holds them."""
        return _copies(self.plan.pieces if self.plan.pp > 1 else ((0,),))

    @property
    def _micro_steps(self) -> tuple[float, float]:
        """The share of micro-steps that add to earlier gradients, and the share that fills DDP's
        buckets."""
        if self._reduced_each_pass:
            return 0.0, 0.0
        if self.stack.fusion.gradients != "fresh":
            return 1.0, 0.0
        share = 1.0 / self.plan.microbatches
        return 1.0 - share, share if self.plan.data_parallel > 1 and not self.plan.zero else 0.0

    @property
    def _reduced_each_pass(self) -> bool:
        """Whether every backward pass frees its whole gradients, so that no pass adds to earlier
        gradients (FSDP1, _runtime_utils.py, `_reduce_grad`: flat_param.grad = None; FSDP2,
        _fsdp_param_group.py, `post_backward`). Gradients of experts on a single rank are added up.
        """
        flat = self.stack.sharding != "in-place" and self.stack.fusion.gradients in (
            "grad",
            "fresh",
        )
        return flat and self.plan.zero >= 2 and not self.no_sync and self.plan.ep == 1

    def parameters(self, chunks: Iterable[Chunk]) -> Mapping[ParameterGroup, float]:
        """Parameters that one rank holds of some chunks, by group."""
        held = tuple(chunks)
        key = "parameters", self.workload, held
        return self.known.memo(
            key,
            lambda: added(
                *(
                    {group: count * each for group, each in part.parameters.items()}
                    for part, count in self._blocks_of(held)
                )
            ),
        )

    def matrices(self, chunks: Iterable[Chunk]) -> Mapping[ParameterGroup, tuple[Matrix, ...]]:
        """Return the weight matrices that one rank holds of some chunks, by group."""
        key = tuple(chunks)
        return self.known.memo(("matrices", self.workload, key), lambda: self._matrices(key))

    def _matrices(self, chunks: tuple[Chunk, ...]) -> Mapping[ParameterGroup, tuple[Matrix, ...]]:
        found: dict[ParameterGroup, tuple[Matrix, ...]] = {}
        for part, often in self._blocks_of(chunks):
            for group, matrix in part.matrices.items():
                repeated = (weight._replace(number=weight.number * often) for weight in matrix)
                found[group] = (*found.get(group, ()), *repeated)
        return found

    def gathered_bytes(self, group: ParameterGroup) -> float:
        """Return bytes per weight of a group while it crosses the network."""
        low = self.recipe if group.low else None
        return low.gathered_weight if low else self.stack.weight_bytes(self.plan.precision)

    def _blocks_of(self, chunks: tuple[Chunk, ...]) -> Iterator[tuple[Block, int]]:
        """Return the blocks of chunks with their counts, each as if recomputed alone."""
        slots = Counter((kind, words) for chunk in chunks for kind, _, words in chunk.slots)
        return ((self.block(kind, words=words), often) for (kind, words), often in slots.items())

    def work(self, kind: str, action: Kind, again: Again = ALONE, words: Words = _AGAIN) -> Work:
        """Return the work of a pass (or half of one) through a block of this kind."""
        return self.known.memo(
            ("work", kind, action, again, words, self.workload),
            lambda: Work(
                name=kind, items=self._items(self.block(kind, again, words), action, again)
            ),
        )

    def _items(self, block: Block, action: Kind, part: Again) -> Items:
        stack, layers = self.host, is_layer(block.kind)
        if action == "F":
            items = self._segments(block.forward, "forward", COMPUTE)
            return (*host_time(stack.layer_forward * layers), *items)
        if action == "W":
            return self._segments(block.weight_gradient, "weights", COMPUTE, backward=True)
        again = self._segments(block.recompute, "recompute", RECOMPUTE)
        back = block.backward if action == "B" else block.input_gradient
        items = self._segments(back, "backward", COMPUTE, backward=True)
        rerun = max(len(part.unit), 1) * layers if again else 0
        host = stack.layer_backward * layers + stack.layer_forward * rerun
        return (*host_time(host), *again, *items)

    def _segments(
        self, items: Iterable[Item], name: str, cause: Cause, *, backward: bool = False
    ) -> Items:
        host = self.host
        made = segments(
            items,
            name=name,
            cause=cause,
            time=self.time,
            launch=host.launch_backward if backward else host.launch_forward,
            call=self._issue,
            graph=host.launch_graph,
            grouped=host.launch_grouped,
            operators=host.operator_backward if backward else host.operator_forward,
        )
        return blocked(made) if self.stack.blocking else made

    def _issue(self, call: Collective) -> float:
        return self.host.launch_collective + self.checked(call)

    def checked(self, call: Collective) -> float:
        """Return seconds that checks hold up the host before a collective."""
        if self.checks is None:
            return 0.0
        ranks, near, stride = 1, 1, 1
        for axis, size in self.plan.mesh.items():
            if axis in call.axes:
                members = len(call.stages) if axis == "pp" and call.stages else size
                ranks, near = ranks * members, near * min(members, max(self.node // stride, 1))
            stride *= size
        return call.times * self.checks.seconds(near, ranks - near)

    def time(self, kernel: Kernel) -> float:
        """Return seconds of a kernel on the device."""
        return kernel_time(kernel, self.kernels_on, self.stack.attention)


@lru_cache(maxsize=1024)
def _copies(pieces: Places) -> tuple[tuple[int, ...], ...]:
    alike = (
        tuple(other for other, theirs in enumerate(pieces) if set(theirs) == set(piece))
        for piece in pieces
    )
    return tuple(stages if len(stages) > 1 else () for stages in alike)


def host_time(seconds: float) -> Items:
    """Host time that no kernel launch accounts for (python between modules)."""
    if seconds == 0.0:
        return ()
    return (Segment(name="host", cause=COMPUTE, device=0.0, host=seconds, lead=seconds),)


def stage_kernels(job: Job, stage: int) -> Iterator[tuple[Kernel, int]]:
    """Each kernel of a microbatch on a rank of a stage (forward, recomputation, backward), and the
    number of equal blocks that run it."""
    slots = Counter(slot for chunk in job.chunks[stage] for slot in chunk.slots)
    for slot, often in slots.items():
        block = job.block(*slot)
        for kernel in kernels_of((*block.forward, *block.recompute, *block.backward)):
            yield kernel, often
