"""What a layout is chosen from: one `Choice` for each thing that a plan decides.

Choices are made one after the other, and each sees those before it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from math import gcd, isqrt
from typing import Any, get_args

from sim.config.errors import InputError
from sim.config.schema import nearest
from sim.model import counts
from sim.model.block import check_rule
from sim.model.checkpointing import MODES, SELECTIVE
from sim.model.experts.settings import layers_of
from sim.model.fusion import Context
from sim.model.network import Network
from sim.model.recommendation import recommendation
from sim.parallel import schedule as schedules
from sim.parallel.axis import axes, dividing
from sim.parallel.chunks import balanced
from sim.parallel.offloading import ON_DEVICE, Offload
from sim.parallel.plan import MOST_MICROBATCHES, Plan
from sim.parallel.unused import check_used
from sim.program.routed import Dispatcher
from sim.search.space import Space

OFFLOADS = {
    "none": ON_DEVICE,
    "optimizer": Offload(optimizer=1.0),
    "activations": Offload(activations=1.0),
    "states": Offload(optimizer=1.0, parameters=1.0),
    "all": Offload(optimizer=1.0, parameters=1.0, activations=1.0),
}
EVEN, BALANCED = "even", "balanced"
YES_OR_NO = ("yes", "no")
ORDERS = ("tp-cp-dp-pp", "tp-cp-pp-dp")  # tensor-parallel peers are neighbours in every framework

_TOKENS = 4096  # fewest of a sequence on a rank where context parallelism is not asked for
_EXPERTS, _NODES = 32, 8  # DeepSeek-V3 on 64 ranks of 8 nodes (arXiv 2412.19437, section 3.2)
_MICROBATCH, _CHUNKS = 16, 12  # the largest that are usual


@dataclass(frozen=True, kw_only=True)
class Choice:
    """`possible` are all values that the sizes allow, `usual` tells those worth trying unasked;
    `take` makes a plan with one of them. Plans to which it does not apply stay as they are.

    In an option values are written as numbers, or as one of `words`; where the choice is `open`
    others than these may be asked for."""

    name: str
    possible: Callable[[Space, Plan], Iterable[Any]]
    words: Callable[[], Iterable[str]] | None = None
    open: bool = False
    applies: Callable[[Plan], bool] = lambda plan: True
    usual: Callable[[Space, Plan, Any], bool] = lambda space, plan, value: True
    take: Callable[[Space, Plan, Any], Plan] | None = None

    def plans(self, space: Space, plan: Plan) -> Iterator[Plan]:
        """The plan with each of the values to try."""
        if not self.applies(plan):
            yield plan
            return
        for value in self._tried(space, plan):
            if self.take is not None:
                yield self.take(space, plan, value)
            else:
                yield replace(plan, **{self.name: value})

    def check(self, values: Iterable[str], option: str) -> None:
        """Refuse words that no value is written as. Raises `InputError`."""
        words = None if self.words is None else list(self.words())
        for value in values:
            if words is None and not value.isdecimal():
                what = f"{self.name} = {value!r} is not a number"
                raise InputError(option, what, f"write {self.name}=4")
            if words and value not in words and not (self.open and option == "--only"):
                what = f"{self.name} = {value!r} is not one"
                raise InputError(option, what, nearest(value, words))

    def _tried(self, space: Space, plan: Plan) -> Iterator[Any]:
        only, without = space.only.get(self.name), space.without.get(self.name, ())
        for value in self.possible(space, plan):
            asked = self.usual(space, plan, value) if only is None else text(value) in only
            if asked and text(value) not in without:
                yield value


def text(value: object) -> str:
    """A value as it is written in an option.

    >>> text(True), text(4), text("gpipe"), text(("mlp", "layernorm"))
    ('yes', '4', 'gpipe', 'mlp+layernorm')
    """
    if isinstance(value, tuple):
        return "+".join(value)
    return YES_OR_NO[not value] if isinstance(value, bool) else str(value)


def divisors(number: int, most: int) -> list[int]:
    """All divisors up to `most`, ascending.

    >>> divisors(24, 8)
    [1, 2, 3, 4, 6, 8]
    """
    small = [each for each in range(1, isqrt(number) + 1) if number % each == 0]
    return sorted(each for each in {*small, *(number // each for each in small)} if each <= most)


def _tensor(space: Space, plan: Plan) -> Iterator[int]:
    model = space.model
    for tp in divisors(space.gpus, space.gpus):
        if model.heads % tp == 0 and model.ffn % tp == 0:
            yield tp


def _context(space: Space, plan: Plan) -> Iterator[int]:
    """Each rank has two shares of the sequence, so that a causal mask leaves equal work to all."""
    for cp in divisors(_left(space, plan), space.model.seq):
        if cp == 1 or space.model.seq % (2 * cp) == 0:
            yield cp


def _stages(space: Space, plan: Plan) -> list[int]:
    return divisors(_left(space, plan), space.model.layers)


def _with_stages(space: Space, plan: Plan, pp: int) -> Plan:
    return replace(plan, pp=pp, dp=_left(space, plan) // pp)


def _left(space: Space, plan: Plan) -> int:
    """The GPUs for each set of ranks of the axes chosen so far."""
    return space.gpus // plan.degree(axes())


def _experts(space: Space, plan: Plan) -> Iterator[int]:
    """Groups of ranks of a stage that each have whole experts, equally many in every layer."""
    if recommendation(space.model):
        yield plan.data_parallel
        return
    ranks = (plan.dp or 1) * plan.tp * plan.cp
    each = gcd(*(settings.experts for settings in layers_of(space.model)))
    for ep in divisors(gcd(each, ranks), ranks) if each else [1]:
        if _divides(replace(plan, ep=ep)):
            yield ep


def _usual_experts(space: Space, plan: Plan, ep: int) -> bool:
    """At most as many experts a rank, and as many nodes a group, as published jobs have."""
    if recommendation(space.model):
        return True
    most = max((settings.experts for settings in layers_of(space.model)), default=1)
    return most <= _EXPERTS * ep and ep <= _NODES * max(space.topology.gpus_per_node, 8)


def _expert_tensor(space: Space, plan: Plan) -> Iterator[int]:
    """Neighbours that each expert is divided over."""
    ranks = (plan.dp or 1) * plan.tp * plan.cp // plan.ep
    width = gcd(*(settings.ffn for settings in layers_of(space.model)))
    for etp in divisors(gcd(width, ranks), ranks) if width else [1]:
        if _divides(replace(plan, etp=etp)):
            yield etp


def _with_dispatcher(space: Space, plan: Plan, name: Dispatcher) -> Plan:
    return plan if name == space.stack.dispatcher else replace(plan, dispatcher=name)


def _turns(space: Space, plan: Plan) -> Iterator[bool]:
    """Passes beside tokens under way, where that is asked for and passes take turns."""
    yield False
    if "overlap_experts" in space.only:
        try:
            check_used(replace(plan, overlap_experts=True), where="--only")
        except InputError:
            return
        yield True


def _with_turns(space: Space, plan: Plan, value: bool) -> Plan:
    """As the schedule does by itself, unless asked for."""
    return replace(plan, overlap_experts=value) if "overlap_experts" in space.only else plan


def _divides(plan: Plan) -> bool:
    """Whether experts divide the ranks of a stage that ZeRO shards over."""
    try:
        plan.check_mesh()
    except InputError:
        return False
    return True


def _own_axis(name: str) -> Choice:
    """An axis of one's own, which is used where it is asked for."""
    return Choice(
        name=name,
        possible=lambda space, plan: divisors(_left(space, plan), space.gpus),
        usual=lambda space, plan, size: size == 1,
        take=lambda space, plan, size: replace(plan, axes={**plan.axes, name: size}),
    )


def _microbatches(space: Space, plan: Plan) -> list[int]:
    own, rest = divmod(space.global_batch, plan.data_parallel)
    whole = [] if rest else divisors(own, own)
    return [size for size in whole if own // size <= MOST_MICROBATCHES]


def _recomputation(space: Space, plan: Plan) -> Iterator[str | tuple[str, ...]]:
    """The usual words, and modules that are asked for: --only recompute=none,mlp+layernorm."""
    modules = not isinstance(space.model, Network)
    yield from (mode for mode in MODES if modules or mode != SELECTIVE)
    for value in space.only.get("recompute", ()):
        names = tuple(value.split("+"))
        if value not in MODES:
            rule = space.stack.checkpointing.rule(names)
            check_rule(rule, space.model.kinds, counts.whole(space.model, 1), where="--only")
            yield names


def _offloads(space: Space, plan: Plan) -> Iterator[str]:
    """What may lie on hosts that the cluster has links to; parameters where ZeRO-3 shards them."""
    for name, offload in OFFLOADS.items():
        if not offload or (space.topology.host and (plan.zero >= 3 or not offload.parameters)):
            yield name


def _contexts(space: Space, plan: Plan) -> Iterator[Context]:
    """An exchange for heads needs a head for every rank."""
    heads = space.model.heads // plan.tp
    yield from (name for name in get_args(Context) if name != "ulysses" or heads % plan.cp == 0)


def _schedules(space: Space, plan: Plan) -> Iterator[str]:
    for name, entry in schedules.table().items():
        if entry.takes(plan.pp, plan.microbatches):
            yield name


def _usual_schedule(space: Space, plan: Plan, name: str) -> bool:
    """Not what is there to compare with, nor what takes long to look for an order or
    would need groups of uneven sizes, nor what trains with stale gradients."""
    entry = schedules.entry(name)
    whole = plan.microbatches % entry.group(plan.pp) == 0
    return entry.usual and entry.searched is None and entry.versions is None and whole


def _chunks(space: Space, plan: Plan) -> Iterable[int]:
    return range(2, space.model.layers // plan.pp + 1)


def _splits(space: Space, plan: Plan) -> Iterator[str]:
    """Evenly (or as the stack does), and so that the costliest chunk is as cheap as can be."""
    layers, pieces = space.model.layers, plan.cuts
    if isinstance(space.model, Network):
        yield EVEN  # its layers are unlike: always so that the slowest stage is as fast as can be
        return
    if _even(space, pieces) or space.stack.balance != "even":
        yield EVEN
    if layers >= pieces:
        yield BALANCED


def _even(space: Space, pieces: int) -> bool:
    """Whether so many pieces can have equally many layers, or those at the ends one less."""
    return space.model.layers % pieces == 0 or (space.model.layers + 2) % pieces == 0


def _with_split(space: Space, plan: Plan, way: str) -> Plan:
    if way == EVEN:
        return plan
    return replace(plan, layers=balanced(space.model, space.stack, plan.pp, plan.cuts // plan.pp))


def _pipelined(plan: Plan) -> bool:
    return plan.pp > 1


def _replicas(space: Space, plan: Plan) -> Iterator[int]:
    """States sharded over all replicas, or over those of one node."""
    yield 1
    inside = space.topology.gpus_per_node // plan.degree(
        axis for axis in axes() if axis not in ("dp", "pp")
    )
    shards = plan.dp or 1
    if 1 < inside < shards and shards % inside == 0:
        count = shards // inside
        if _divides(_with_replicas(space, plan, count)):
            yield count


def _with_replicas(space: Space, plan: Plan, count: int) -> Plan:
    return replace(plan, dp=(plan.dp or 1) // count, dp_replicate=count)


# Layouts that share the sizes of the mesh share most of their work; those that share their passes
# too differ in states and places only.
TENSOR, CONTEXT, STAGES, EXPERTS = (
    Choice(
        name="tp",
        possible=_tensor,
        usual=lambda space, plan, tp: tp <= max(space.topology.gpus_per_node, 8),
    ),
    Choice(
        name="cp",
        possible=_context,
        usual=lambda space, plan, cp: cp == 1 or space.model.seq // cp >= _TOKENS,
    ),
    Choice(name="pp", possible=_stages, take=_with_stages),
    Choice(name="ep", possible=_experts, usual=_usual_experts),
)
EXPERT_TENSOR = Choice(name="etp", possible=_expert_tensor, usual=lambda space, plan, etp: etp == 1)


def sizes() -> tuple[Choice, ...]:
    """The sizes of the mesh, axes of one's own among them; data parallelism is what is left."""
    own = (axis for axis in axes() if axis not in Plan.__dataclass_fields__)
    return TENSOR, CONTEXT, *map(_own_axis, own), STAGES, EXPERTS, EXPERT_TENSOR


PASSES = (
    Choice(
        name="microbatch",
        possible=_microbatches,
        usual=lambda space, plan, size: size <= _MICROBATCH and size & (size - 1) == 0,
    ),
    Choice(name="recompute", possible=_recomputation, words=lambda: MODES, open=True),
    Choice(
        name="context",
        words=lambda: get_args(Context),
        possible=_contexts,
        applies=lambda plan: plan.cp > 1,
        usual=lambda space, plan, context: context == space.stack.context,
    ),
    Choice(
        name="sequence_parallel",
        words=lambda: YES_OR_NO,
        possible=lambda space, plan: (False, True),
        applies=lambda plan: plan.tp > 1,
    ),
    Choice(
        name="schedule",
        words=schedules.table,
        possible=_schedules,
        applies=_pipelined,
        usual=_usual_schedule,
    ),
    Choice(
        name="interleave",
        possible=_chunks,
        applies=lambda plan: plan.pp > 1 and schedules.entry(plan.schedule).chunks is None,
        usual=lambda space, plan, chunks: chunks <= _CHUNKS and _even(space, plan.pp * chunks),
    ),
    Choice(
        name="layers",
        words=lambda: (EVEN, BALANCED),
        possible=_splits,
        applies=_pipelined,
        usual=lambda space, plan, split: split == EVEN or plan.chunks == 1,
        take=_with_split,
    ),
    Choice(
        name="dispatcher",
        words=lambda: get_args(Dispatcher),
        possible=lambda space, plan: get_args(Dispatcher),
        applies=lambda plan: plan.ep > 1,
        usual=lambda space, plan, name: name == space.stack.dispatcher,
        take=_with_dispatcher,
    ),
    Choice(
        name="overlap_experts",
        words=lambda: YES_OR_NO,
        possible=_turns,
        applies=lambda plan: plan.ep > 1 and not plan.versions(0),
        usual=lambda space, plan, value: not value,
        take=_with_turns,
    ),
)
STATES = (
    Choice(
        name="zero",
        words=lambda: "0123",
        possible=lambda space, plan: range(1 + (space.stack.pipeline_zero if plan.pp > 1 else 3)),
        applies=lambda plan: (
            plan.degree(dividing("batch", "sequence")) > 1 and not plan.versions(0)
        ),
    ),
    Choice(
        name="reshard",
        words=lambda: YES_OR_NO,
        possible=lambda space, plan: (True, False),
        applies=lambda plan: plan.zero >= 3,
        usual=lambda space, plan, value: plan.pp == 1 or not value,
    ),
    Choice(
        name="no_sync",
        words=lambda: YES_OR_NO,
        possible=lambda space, plan: (False, True),
        applies=lambda plan: plan.zero >= 2 and plan.microbatches > 1,
        usual=lambda space, plan, value: value == (plan.pp > 1),
    ),
    Choice(
        name="offload",
        words=lambda: OFFLOADS,
        possible=_offloads,
        applies=lambda plan: not plan.versions(0),
        usual=lambda space, plan, name: name == "none",
        take=lambda space, plan, name: replace(plan, offload=OFFLOADS[name]),
    ),
    Choice(
        name="dp_replicate",
        possible=_replicas,
        take=_with_replicas,
        applies=lambda plan: plan.zero > 0,
    ),
    Choice(
        name="order",
        words=lambda: ORDERS,
        possible=lambda space, plan: ORDERS,
        applies=lambda plan: plan.pp > 1 and plan.data_parallel > 1,
    ),
)


def parsed(words: Iterable[str], option: str) -> dict[str, tuple[str, ...]]:
    """Options such as "zero=1,3" by the name of their choice. Raises `InputError`.

    >>> parsed(["zero=1,3", "schedule=1f1b"], "--only")
    {'zero': ('1', '3'), 'schedule': ('1f1b',)}
    """
    known = {choice.name: choice for choice in (*sizes(), *PASSES, *STATES)}
    values: dict[str, tuple[str, ...]] = {}
    for word in words:
        name, equals, own = word.partition("=")
        if name not in known:
            raise InputError(option, f"{name!r} is not a choice", nearest(name, [*known]))
        if not equals or not own:
            raise InputError(option, f"{word!r} has no value", f"write {name}=VALUE[,VALUE]")
        values[name] = (*values.get(name, ()), *own.split(","))
        known[name].check(values[name], option)
    return values
