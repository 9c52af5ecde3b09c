"""What a program computes and sends, counted call by call."""

from collections import Counter
from collections.abc import Iterator

from sim.program.operations import Call, Collective, Compute, PassOps, Segment, Work
from sim.program.program import Program

SENT = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}


def sent(program: Program, microbatches: int) -> Counter[str]:
    """Bytes that a rank of every stage sends in a step, together, by cause."""
    found: Counter[str] = Counter()
    for ops in all_ops(program):
        for call in calls(ops):
            found[str(call.cause)] += bytes_of(call, program)
    borders = sum(
        program.exchange.between(program.schedule.pieces[a][b], program.schedule.pieces[c][d])
        for (a, b), (c, d) in program.schedule.borders()
        if a != c
    )
    found["pipeline communication"] += 2 * microbatches * borders
    return found


def executed(program: Program) -> float:
    """FLOPs of matrix products that a rank of every stage executes in a step, together."""
    total = 0.0
    for ops in all_ops(program):
        for operation in ops.operations:
            if isinstance(operation, Compute):
                items = operation.work.flat()
                total += sum(item.flops for item in items if isinstance(item, Segment))
    return total


def all_ops(program: Program) -> Iterator[PassOps]:
    """What ranks of every stage run in a step, one of each."""
    for stage, actions in zip(program.stages, program.schedule.actions, strict=True):
        yield from (stage.ops_by_variant[actions.variants[row]] for row in actions.rows)
        yield stage.closing


def bytes_of(call: Call, program: Program) -> float:
    """What a rank sends for a collective, as rings do."""
    assert isinstance(call, Collective)
    if call.kind == "copy":
        return 0.0
    ranks = 1
    for axis in call.axes:
        ranks *= len(call.stages) if axis == "pp" and call.stages else program.mesh[axis]
    return SENT[call.kind] * call.bytes * call.times * (ranks - 1) / ranks


def calls(ops: PassOps) -> Iterator[Call]:
    """Every call of a pass, as often as it is made."""
    for operation in ops.operations:
        if isinstance(operation, Compute):
            yield from inside(operation.work)
        else:
            yield from operation.calls


def inside(work: Work) -> Iterator[Call]:
    """Every call within work. Transfers that it runs beside are operations of their own."""
    for item in work.items:
        if isinstance(item, Collective):
            yield item
        elif isinstance(item, Work):
            yield from inside(item)
        else:
            yield from item.beside
