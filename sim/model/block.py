"""Blocks: what an embedding, a layer or a head does on one rank for one microbatch.

A model is a row of blocks of kinds. A kind is a module of `sim.model.blocks` that offers
`operators(run)`; recomputation, which is the same for all kinds, is added here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sim.model.attention import CORE
from sim.model.execution import Execution, Recompute
from sim.model.groups import ParameterGroup
from sim.model.kinds import is_layer, specialised
from sim.model.operators import Items, Operator, forward


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Block:
    """Items of the forward pass, of the whole backward pass, and of its two halves.

    `recompute` runs before `backward` or `input_gradient`. Bytes: `saved` from forward to backward,
    `held` between the two halves of a split backward pass; `transient` is the largest amount alive
    only while the block runs forward or backward. `parameters` counts this rank's, by group.
    """

    kind: str
    forward: Items
    backward: Items
    input_gradient: Items
    weight_gradient: Items
    recompute: Items
    saved: float
    held: float
    transient: float
    parameters: Mapping[ParameterGroup, float]

    @property
    def count(self) -> float:
        """All parameters of this rank."""
        return sum(self.parameters.values())


def block(kind: str, run: Execution, recompute: Recompute = "none") -> Block:
    """One block of a kind, or of a variant in the model's `blocks`. Raises `InputError`.

    `recompute="selective"` keeps Q, K and V and runs the attention core again; "full" keeps the
    block's input and runs all of it again. Embedding and head are never run again.
    """
    module, run = specialised(kind, run)
    operators = module.operators(run)
    again = _recomputed(operators, recompute) if is_layer(kind) else ()
    saved = sum(operator.saved + operator.saved_for_weights for operator in operators)
    left_out = sum(operator.saved + operator.saved_for_weights for operator in again)
    kept = saved - left_out + (again[0].inputs if again else 0.0)
    backward = list(reversed(operators))
    return Block(
        kind=kind,
        forward=forward(operators),
        backward=tuple(item for operator in backward for item in operator.backward),
        input_gradient=tuple(item for operator in backward for item in operator.input_pass),
        weight_gradient=tuple(item for operator in backward for item in operator.weight_pass),
        recompute=forward(again),
        saved=kept,
        held=sum(op.saved_for_weights + op.handed for op in operators if op.weight_gradient),
        transient=max(op.transient for op in operators) + saved - kept,
        parameters=_by_group(operators),
    )


def _recomputed(operators: Sequence[Operator], recompute: Recompute) -> Sequence[Operator]:
    """The operators that run again before the backward pass."""
    if recompute == "none":
        return ()
    if recompute == "full":
        return operators
    return [operator for operator in operators if operator.name == CORE]


def _by_group(operators: Iterable[Operator]) -> dict[ParameterGroup, float]:
    counts: dict[ParameterGroup, float] = {}
    for operator in operators:
        if operator.parameters:
            counts[operator.group] = counts.get(operator.group, 0.0) + operator.parameters
    return counts
