"""Tensor parallelism by DTensor: gathers are separate operators, with copies around them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from sim.model.execution import Execution
from sim.model.kernels import Item, MemoryBound
from sim.model.operators import Items, Operator
from sim.program.operations import Collective

_COPY = "shares in order"


def redistributed(operators: Iterable[Operator], run: Execution) -> Iterator[Operator]:
    """Yield the operators of a stack that `redistributes`: they have copies around gathers and
    scatters, and gathers are separate operators, which recomputation may run again.

    A DTensor is gathered in front of torch's own linear layer, which keeps the whole input
    (torch/distributed/tensor/parallel/style.py, PrepareModuleInput). NCCL puts the gathered shares
    of the ranks one after the other, and a copy joins the shares of each sequence
    (torch/distributed/ _functional_collectives.py: `torch.cat(torch.chunk(res, group_size, dim=0),
    dim=gather_dim)`). A similar copy precedes a reduce-scatter. A single sequence needs no copy
    after a gather (torch/ _utils.py, _maybe_view_chunk_cat). In compiled code a neighbouring
    memory-bound kernel does the copy. Asynchronous tensor parallelism needs no copies: its products
    read and write shares (torch/distributed/_symmetric_memory,
    restride_A_shard_for_fused_all_gather_matmul).
    """
    for operator in operators:
        ordered = operator if run.fusion.overlap_tensor else _ordered(operator, run)
        yield from (ordered,) if ordered.before_weights is None else _parted(ordered, run)


def _ordered(operator: Operator, run: Execution) -> Operator:
    """Return an operator with the copies around its gathers and scatters."""
    last = () if operator.after_input is None else (operator.after_input,)
    back = _with_copies((*operator.input_gradient, *last), run)
    return replace(
        operator,
        forward=_with_copies(operator.forward, run),
        input_gradient=back[: len(back) - len(last)],
        weight_gradient=_with_copies(operator.weight_gradient, run),
    )


def _with_copies(items: Sequence[Item], run: Execution) -> Items:
    """Return items with a copy in front of each scatter and after each gather."""
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
    """Whether a neighbouring kernel does the copy, in compiled code."""
    return run.fusion.compiled and any(isinstance(item, MemoryBound) for item in neighbour)


def _parted(operator: Operator, run: Execution) -> Iterator[Operator]:
    """Yield the gather of an operator's input as an operator, and the operator that reads and keeps
    the whole input. A gather that runs beside the product stays part of the operator."""
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
