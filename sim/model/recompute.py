"""Recomputation: which operators of a layer run again before its backward pass, and which tensors
are kept.

An operator reads the result of an earlier operator, and keeps this result or its own result. A
tensor has a maker (the operator that makes it) and readers. It is kept if the backward pass or an
operator that runs again reads it, unless its maker runs again, too.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import NamedTuple

from sim.model.checkpointing import Rule
from sim.model.kernels import Attention, Gemm, Item, Overlap
from sim.model.operators import Items, Operator
from sim.program.operations import Collective

# Modules that torch's checkpoint runs again as a whole, so that a reader outside keeps their
# result. Results of other modules are discarded and made again for their readers (Megatron-LM,
# megatron/core/transformer/transformer_config.py, recompute_modules).
_WITH_OUTPUT = ("core_attn", "mlp", "moe", "shared_experts")


class Recomputed(NamedTuple):
    """The items that run again, the bytes that a layer has `kept`, and for each operator the bytes
    that recomputation has brought back (`alive`) while the operator runs backward."""

    items: Items
    kept: float
    alive: tuple[float, ...]


def recomputed(operators: Sequence[Operator], rule: Rule, *, compiled: bool = False) -> Recomputed:
    """Return the recomputation of a layer under a rule. A `compiled` layer keeps no result that
    nothing reads."""
    repeats = list(_repeats(operators, rule))
    tensors = _tensors(operators)
    operators = _casting_again(operators, repeats, tensors)
    needed = _needed(operators, repeats, tensors, functions=rule.functions)
    if compiled:
        repeats = [each if need else each.cut() for each, need in zip(repeats, needed, strict=True)]
    kept = sum(op.made * (1 - repeat.share) for op, repeat in zip(operators, repeats, strict=True))
    dropped: defaultdict[str, float] = defaultdict(float)
    for operator, repeat in zip(operators, repeats, strict=True):
        dropped[repeat.name or ""] += operator.made * repeat.share
    for makers, reading in tensors:
        made = [repeats[maker] if maker >= 0 else _STAYS for maker in makers]
        whole = max(operators[reader].keeps for reader in reading)
        left = _kept_between(made, reading, operators, repeats)
        kept += left
        names = [own.name for own in (*(repeats[reader] for reader in reading), *made) if own.name]
        dropped[names[0] if names else ""] += whole - left
    items = (
        item
        for each, need in zip(repeats, needed, strict=True)
        for item in (each.items if need or not rule.early_stop else ())
    )
    return Recomputed(tuple(items), kept, _alive(repeats, dropped))


class _Tensor(NamedTuple):
    """The numbers of the operators that make a tensor and that read it."""

    makers: tuple[int, ...]
    readers: tuple[int, ...]


class _Repeat(NamedTuple):
    """How far an operator runs again: the `name` that a rule gives it, the `share` of its results
    that is made again, and the items that run."""

    name: str | None
    share: float
    items: Items

    def cut(self) -> "_Repeat":
        """Return this repeat without its items, for results that no operator reads: they are
        neither kept nor made again."""
        return _Repeat(self.name, 1.0, ()) if self.share else self


_STAYS = _Repeat(None, 0.0, ())


def _repeats(operators: Sequence[Operator], rule: Rule) -> Iterator[_Repeat]:
    products = count(1)
    for operator in operators:
        name = rule.chosen((*operator.modules, operator.name))
        if name is None:
            yield _STAYS
            continue
        saved = [item for item in _flat(operator.forward) if _is_saved(item, rule, products)]
        share = _share(operator, saved)
        items = _without(operator.forward, saved) if share else ()
        yield _Repeat(name if share else None, share, items)


def _flat(items: Items) -> Iterator[Item]:
    for item in items:
        yield from (item.collective, *item.kernels) if isinstance(item, Overlap) else (item,)


def _is_saved(item: Item, rule: Rule, products: Iterator[int]) -> bool:
    """Whether the rule keeps the result of an item, which then does not run again."""
    if isinstance(item, Gemm) and item.batch == 1:
        again = rule.again_mm and next(products) % rule.again_mm == 0
        return "mm" in rule.saves and not again
    if isinstance(item, Attention):
        return "attention" in rule.saves
    return isinstance(item, Collective) and item.kind in rule.saves


def _share(operator: Operator, saved: Sequence[Item]) -> float:
    """Return the share of an operator's results that is made again."""
    if any(not isinstance(item, Gemm) for item in saved):
        return 0.0
    results = [item.m * item.n for item in _flat(operator.forward) if isinstance(item, Gemm)]
    kept = sum(item.m * item.n for item in saved if isinstance(item, Gemm))
    return 1.0 - kept / sum(results) if saved else 1.0


def _without(items: Items, saved: Sequence[Item]) -> Items:
    """Return the items whose results are not saved; collectives beside saved items stay."""
    left: list[Item] = []
    for item in items:
        if isinstance(item, Overlap):
            kernels = tuple(k for k in item.kernels if not any(k is kept for kept in saved))
            left.append(replace(item, kernels=kernels) if kernels else item.collective)
        elif not any(item is other for other in saved):
            left.append(item)
    return tuple(left)


def _tensors(operators: Sequence[Operator]) -> list[_Tensor]:
    """Return the tensors between operators, in the order of their first readers. The maker of the
    layer's input has the number -1. Operators that read the same operator by name (`reads`) read
    different parts of its result, so each reads a tensor of its own."""
    numbers = {operator.name: number for number, operator in enumerate(operators)}
    tensors: dict[int, _Tensor] = {}
    for number, operator in enumerate(operators):
        if operator.beside:
            first = numbers[operator.beside]
            tensors[first] = tensors[first]._replace(readers=(*tensors[first].readers, number))
        else:
            makers = tuple(numbers[name] for name in operator.reads) or (number - 1,)
            tensors[number] = _Tensor(makers, (number,))
    return list(tensors.values())


def _casting_again(
    operators: Sequence[Operator], repeats: Sequence[_Repeat], tensors: Sequence[_Tensor]
) -> list[Operator]:
    """Return the operators. An operator whose input is discarded and made again keeps no cast of
    it, but casts it once more (Megatron-LM, set_save_original_input in
    set_for_recompute_pre_mlp_layernorm)."""
    cast = list(operators)
    for makers, readers in tensors:
        made = [repeats[maker] if maker >= 0 else _STAYS for maker in makers]
        if all(repeat.share == 1.0 and repeat.name not in _WITH_OUTPUT for repeat in made):
            for reader in readers:
                if cast[reader].casts and not repeats[reader].share:
                    cast[reader] = replace(cast[reader], made=0.0)
    return cast


def _needed(
    operators: Sequence[Operator],
    repeats: Sequence[_Repeat],
    tensors: Sequence[_Tensor],
    *,
    functions: bool,
) -> list[bool]:
    """Return for each operator whether it runs again and the backward pass needs its results. With
    `functions` an operator that keeps inputs is also needed, as only running saves them."""
    needed = [False] * len(operators)
    for number in reversed(range(len(operators))):
        reading = (r for makers, readers in tensors if number in makers for r in readers)
        wanted = any(operators[r].keeps or needed[r] for r in reading)
        made = operators[number].made > 0 or (functions and operators[number].keeps > 0)
        needed[number] = repeats[number].share > 0 and (made or wanted)
    return needed


def _kept_between(
    made: Sequence[_Repeat],
    readers: Sequence[int],
    operators: Sequence[Operator],
    repeats: Sequence[_Repeat],
) -> float:
    """Return the bytes that are kept of the tensor between makers and their readers."""
    wanted = {
        reader: operators[reader].inputs if repeats[reader].items else operators[reader].keeps
        for reader in readers
    }
    names = {tensor.name for tensor in made}
    if names & set(_WITH_OUTPUT):
        return max(
            (size for r, size in wanted.items() if repeats[r].name not in names), default=0.0
        )
    return max(1.0 - repeat.share for repeat in made) * max(wanted.values())


def _alive(repeats: Sequence[_Repeat], dropped: Mapping[str, float]) -> tuple[float, ...]:
    """Return the bytes that are in memory again while each operator runs backward."""
    discarded = max((size for name, size in dropped.items() if name not in _WITH_OUTPUT), default=0)
    return tuple(
        max(
            discarded, dropped[name] if (name := repeat.name) in _WITH_OUTPUT and name else 0.0, 0.0
        )
        for repeat in repeats
    )
