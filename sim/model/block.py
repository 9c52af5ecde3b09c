"""Blocks: the work of an embedding, a layer or a head on one rank for one microbatch.

A model is a row of blocks, each of a kind. A kind is a module of `sim.model.blocks` that offers
`operators(run)`; recomputation, which is the same for all kinds, is added here.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from itertools import groupby
from typing import Literal, NamedTuple

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.model.checkpointing import FULL, MODES, NOTHING, Rule
from sim.model.execution import Execution, ParameterGroup
from sim.model.kernels import GRAPH, GRAPH_END, Item
from sim.model.kinds import is_layer, specialised
from sim.model.operators import Items, Matrix, Operator
from sim.model.recompute import recomputed


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Block:
    """The kernels and collectives of a block's passes, its bytes and its parameters.

    `backward` is the whole backward pass; `input_gradient` and `weight_gradient` are its halves
    where a schedule splits it. `recompute` runs before `backward` or `input_gradient`.

    The forward pass leaves `saved` bytes, and the backward pass frees `freed`. The two differ in a
    unit of layers that run again together. The last layer's recomputation restores the other
    layers' tensors, so the last layer frees less and the others free more. `held` bytes lie between
    the halves of a split backward pass; `transient` is the largest amount alive only while the
    block runs. `parameters` counts the rank's parameters by group; `matrices` has the shapes of
    most of them.
    """

    kind: str
    forward: Items
    backward: Items
    input_gradient: Items
    weight_gradient: Items
    recompute: Items
    saved: float
    freed: float
    held: float
    transient: float
    parameters: Mapping[ParameterGroup, float]
    matrices: Mapping[ParameterGroup, tuple[Matrix, ...]] = field(default_factory=dict)

    def shapes(self, group: ParameterGroup) -> Iterator[tuple[int, int]]:
        """Rows and columns of every matrix of a group."""
        for matrix in self.matrices.get(group, ()):
            yield from ((matrix.rows, matrix.columns),) * matrix.number

    @property
    def count(self) -> float:
        """All parameters of this rank."""
        return sum(self.parameters.values())

    @property
    def trained(self) -> float:
        """The parameters that have gradients."""
        return sum(count for group, count in self.parameters.items() if group.trained)


class Again(NamedTuple):
    """A layer's part in recomputation: the layer runs again alone (as the rule says), in a unit
    with other layers, or not at all. The layer that `begins` a unit keeps its input. The last layer
    of a unit has the kinds of all its layers (`unit`), which run again before its backward pass."""

    way: Literal["alone", "in a unit", "not"] = "alone"
    begins: bool = False
    unit: tuple[str, ...] = ()


ALONE, NOT = Again(), Again("not")


def block(
    kind: str,
    run: Execution,
    rule: Rule = NOTHING,
    again: Again = ALONE,
    operators: Callable[[str, Execution], Sequence[Operator]] | None = None,
) -> Block:
    """Return one block of a kind, or of a variant in the model's `blocks`. In a layer, the
    operators that the rule names run again. `operators` gives the operators of a kind, by default
    `operators_of`. Raises `InputError` for an unknown kind."""
    make = partial(_block, operators or operators_of, run)
    plain = make(kind, rule if again.way == "alone" else NOTHING)
    return _in_a_unit(plain, make, rule, again) if again.way == "in a unit" else plain


def _in_a_unit(plain: Block, make: Callable[[str, Rule], Block], rule: Rule, again: Again) -> Block:
    """Return a layer of a unit. The unit runs again before its last layer's backward pass."""
    saved = make(plain.kind, rule).saved if again.begins else 0.0
    if not again.unit:
        return replace(plain, saved=saved)
    unit = [make(kind, rule) for kind in again.unit]
    others = sum(make(kind, NOTHING).saved for kind in again.unit[:-1])
    restored = others - (unit[0].saved if len(unit) > 1 else 0.0)
    return replace(
        plain,
        recompute=tuple(item for each in unit for item in each.recompute),
        saved=saved,
        freed=saved - restored,
        transient=plain.transient + plain.saved - saved,
    )


def _block(
    of: Callable[[str, Execution], Sequence[Operator]], run: Execution, kind: str, rule: Rule
) -> Block:
    operators = of(kind, run)
    rule = rule if is_layer(kind) else NOTHING
    again = recomputed(operators, rule, compiled=run.fusion.compiled)
    return Block(
        kind=kind,
        forward=_row(operators, [op.forward for op in operators], run),
        backward=_row(operators, [op.backward for op in operators], run, backward=True),
        input_gradient=_row(operators, [op.input_pass for op in operators], run, backward=True),
        weight_gradient=_row(operators, [op.weight_pass for op in operators], run, backward=True),
        recompute=again.items,
        saved=again.kept,
        freed=again.kept,
        held=sum(op.saved_for_weights + op.handed for op in operators if op.weight_gradient),
        transient=max(
            operator.transient + alive
            for operator, alive in zip(operators, again.alive, strict=True)
        ),
        parameters=_by_group(operators),
        matrices=_matrices(operators),
    )


def _row(
    operators: Sequence[Operator], items: list[Items], run: Execution, *, backward: bool = False
) -> Items:
    """Return the items of the operators one after the other, in forward or backward order."""
    rows: Sequence[Items] = items
    if run.overlaps_shared:
        from sim.model.experts.overlap import beside_tokens

        rows = beside_tokens(operators, items)
    parts = list(zip((operator.scope for operator in operators), rows, strict=True))
    return _launched(reversed(parts) if backward else parts, run.graphs)


def _launched(parts: Iterable[tuple[str, Items]], graphs: tuple[str, ...]) -> Items:
    """Return the items of the operators in a row, with marks around the CUDA graphs. Neighbouring
    scopes form one graph (Megatron-LM, transformer_layer.py, `_te_cuda_graph_capture`)."""
    found: list[Item] = []
    for captured, members in groupby(parts, lambda part: part[0] in graphs):
        items = [item for _, each in members for item in each]
        found += [GRAPH, *items, GRAPH_END] if captured and items else items
    return tuple(found)


def check_rule(rule: Rule, kinds: Iterable[str], run: Execution, *, where: str) -> None:
    """Raise `InputError` if the rule names an operator or module that no layer of `kinds` has."""
    named = [name for name in rule.again if name != FULL]
    if not named:
        return
    operators = [each for kind in dict.fromkeys(kinds) for each in operators_of(kind, run)]
    modules = dict.fromkeys(name for operator in operators for name in operator.modules)
    known = [*modules, *dict.fromkeys(each.name for each in operators)]
    for name in named:
        if name not in known:
            fault = f"recompute: no operator or module of this model is named {name!r}"
            raise InputError.unknown(where, fault, name, [*MODES, *known])


def check_adapters(kinds: Iterable[str], run: Execution, *, where: str) -> None:
    """Raise `InputError` if the rank of adapters exceeds the model's width (Hu et al. 2021), or if
    no layer of `kinds` has a module that the user names for an adapter. If the user names no
    module, one of the usual modules is enough."""
    if run.lora is None:
        return
    if run.lora.rank > run.model.hidden:
        fault = f"lora.rank = {run.lora.rank} is larger than hidden = {run.model.hidden}"
        raise InputError(where, fault, f"set lora.rank at most {run.model.hidden}")
    operators = [each for kind in dict.fromkeys(kinds) for each in operators_of(kind, run)]
    known = dict.fromkeys(filter(None, (run.lora.module_of(each.name) for each in operators)))
    missing = [module for module in run.lora.modules if module not in known]
    if missing and (not run.lora.usual or not known):
        fault = f"lora: no layer of this model has a linear layer {missing[0]!r}"
        raise InputError(where, fault, f"known: {', '.join(known)}" if known else "leave lora out")


def check_graphs(
    graphs: Sequence[str], kinds: Iterable[str], run: Execution, *, where: str
) -> None:
    """Raise `InputError` for a scope of CUDA graphs without any operator of these layers."""
    if not graphs:
        return
    operators = [each for kind in dict.fromkeys(kinds) for each in operators_of(kind, run)]
    known = dict.fromkeys(each.scope for each in operators if each.scope)
    for scope in graphs:
        if scope not in known:
            fault = f"cuda_graph: no layer of this model has a scope {scope!r}"
            raise InputError(where, fault, f"known: {', '.join(['full_iteration', *known])}")


def operators_of(kind: str, run: Execution) -> list[Operator]:
    """The operators of a kind of block on one rank, in forward order."""
    module, run = specialised(kind, run)
    if not (run.fusion.compiled_ends or is_layer(kind)):
        run = replace(run, fusion=replace(run.fusion, compiled=False))
    operators = [operator for operator in module.operators(run) if operator != Operator()]
    if run.fusion.redistributes and run.sharding.sequence_parallel:
        from sim.model.redistributed import redistributed

        operators = list(redistributed(operators, run))
    if run.lora is not None:
        from sim.model.adapters import fine_tuned

        operators = fine_tuned(operators, run)
    return operators


def _matrices(operators: Iterable[Operator]) -> dict[ParameterGroup, tuple[Matrix, ...]]:
    found: dict[ParameterGroup, tuple[Matrix, ...]] = {}
    for operator in operators:
        if operator.parameters and operator.matrices:
            found[operator.group] = (*found.get(operator.group, ()), *operator.matrices)
    return found


def _by_group(operators: Iterable[Operator]) -> dict[ParameterGroup, float]:
    counts: dict[ParameterGroup, float] = {}
    for operator in operators:
        if operator.parameters:
            counts[operator.group] = counts.get(operator.group, 0.0) + operator.parameters
    return counts
