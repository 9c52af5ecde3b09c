"""Tensor parallelism by DTensor, where redistributing a tensor is an operator of its own.

Megatron's linear layers keep a share of their input and gather it again for their weights'
gradients. A DTensor is gathered in front of torch's own linear layer, which keeps the whole
(torch/distributed/tensor/parallel/style.py, PrepareModuleInput). What NCCL gathers are the ranks'
shares one behind the other; parts of each sequence they become by a copy (torch/distributed/
_functional_collectives.py: `torch.cat(torch.chunk(res, group_size, dim=0), dim=gather_dim)`, and
the like in front of a reduce-scatter). A single sequence needs none behind a gather (torch/
_utils.py, _maybe_view_chunk_cat). Compiled, a memory-bound kernel beside it copies along the way.
Asynchronous tensor parallelism, whose products read and write pieces, has no copies (torch/
distributed/_symmetric_memory, restride_A_shard_for_fused_all_gather_matmul).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from sim.model.execution import Execution
from sim.model.kernels import Item, MemoryBound
from sim.model.operators import Items, Operator
from sim.program.operations import Collective

_COPY = "shares in order"


def redistributed(operators: Iterable[Operator], run: Execution) -> Iterator[Operator]:
    """The operators where the stack `redistributes`: copies beside what gathers and scatters, and
    gathers that are operators, which run again where a rule says so."""
    for operator in operators:
        ordered = operator if run.fusion.overlap_tensor else _ordered(operator, run)
        yield from (ordered,) if ordered.before_weights is None else _parted(ordered, run)


def _ordered(operator: Operator, run: Execution) -> Operator:
    """The operator with copies."""
    last = () if operator.after_input is None else (operator.after_input,)
    back = _with_copies((*operator.input_gradient, *last), run)
    return replace(
        operator,
        forward=_with_copies(operator.forward, run),
        input_gradient=back[: len(back) - len(last)],
        weight_gradient=_with_copies(operator.weight_gradient, run),
    )


def _with_copies(items: Sequence[Item], run: Execution) -> Items:
    """Items with a copy in front of each scatter and behind each gather."""
    done: list[Item] = []
    for place, item in enumerate(items):
        kind: str = ""
        copy: Items = ()
        if isinstance(item, Collective) and item.axes == run.sharding.tensor:
            kind, copy = item.kind, (MemoryBound(name=_COPY, bytes=2.0 * item.bytes),)
        if kind == "reduce_scatter" and not _joins(items[place - 1 : place], run):
            done += copy
        done.append(item)
        if kind == "all_gather" and not _joins(items[place + 1 : place + 2], run):
            done += copy if run.microbatch > 1 else ()
    return tuple(done)


def _joins(neighbour: Sequence[Item], run: Execution) -> bool:
    """Whether a kernel copies along the way."""
    return run.fusion.compiled and any(isinstance(item, MemoryBound) for item in neighbour)


def _parted(operator: Operator, run: Execution) -> Iterator[Operator]:
    """The gather of an operator's input, and the operator that reads and keeps the whole. A gather
    beside the product stays part of it."""
    kept = run.tp * operator.saved_for_weights
    whole = replace(operator, before_weights=None, saved_for_weights=kept)
    gathers = [isinstance(item, Collective) for item in operator.forward]
    if not any(gathers):
        yield replace(whole, made=kept)
        return
    behind = gathers.index(True) + 1
    row = operator.forward
    behind += any(isinstance(item, MemoryBound) and item.name == _COPY for item in row[behind:][:1])
    yield Operator(
        name=f"{operator.name} gather",
        modules=operator.modules,
        scope=operator.scope,
        reads=operator.reads,
        beside=operator.beside,
        forward=row[:behind],
        inputs=operator.inputs,
    )
    yield replace(
        whole,
        reads=(),
        beside="",
        forward=row[behind:],
        inputs=run.tp * operator.inputs,
        made=run.tp * operator.made,
    )
