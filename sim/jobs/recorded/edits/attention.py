"""An edit that replaces attention written by hand with fused attention, which stores no scores.

By hand, a batched product makes the scores. Several kernels scale, mask and normalise the scores,
and a second product multiplies the scores by the values. A backward pass has two products before
the softmax's backward kernel, and two after it. Each pass becomes one kernel, as
`F.scaled_dot_product_attention` launches it. Copies that reorder operands are left out, as the
fused kernel accepts any order.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

from sim.config.dataclass import dataclass
from sim.jobs.recorded.axes import Axes
from sim.jobs.recorded.edits.edit import Edit, blocks, line_of, most, rewritten, seconds_of
from sim.jobs.recorded.kernels import is_product, kernel_of, short_name
from sim.jobs.recorded.recording import Event, Operator, Recording, Tensor
from sim.jobs.recorded.setup import Recorded
from sim.model.kernels import MemoryBound

_SIDES = {"_softmax": 1, "_softmax_backward_data": 2}  # products before the kernel, and after it


@dataclass(frozen=True, slots=True)
class _ByHand:
    """Attention of one layer in a pass. It has the events of its `products`, of its `inner` kernels
    on scores and of `copies` of operands. The `fused` operator replaces all these events."""

    products: tuple[int, ...]
    inner: tuple[int, ...]
    copies: tuple[int, ...]
    fused: Operator
    masked: bool

    @property
    def events(self) -> tuple[int, ...]:
        return (*self.products, *self.inner, *self.copies)


def edits(setup: Recorded) -> Iterator[Edit]:
    """Yield the edit that fuses all hand-written attention whose mask depends on positions only."""
    lines, size, masked = defaultdict[str, float](float), 0.0, False
    count = {2: 0, 4: 0}  # by products: 2 in a forward pass, 4 in a backward pass
    for recording, _ in setup.stages:
        seconds = seconds_of(recording, setup.time)
        for by_hand in _by_hand(recording):
            for number in by_hand.inner:
                lines[line_of(recording, recording.events[number])] += seconds[number]
            q, k, _ = by_hand.fused.inputs[-3:]
            size = max(size, q.width * prod(q.shape[:3]) * k.shape[2])
            count[len(by_hand.products)] += 1
            masked |= by_hand.masked
    if not all(count.values()):
        return
    causal, taken = (", is_causal=True", "; a mask is assumed to be causal") if masked else ("", "")
    scores = f"scores of {size / 2**20:,.0f} MiB are written and read"
    yield Edit(
        change=f"call F.scaled_dot_product_attention(q, k, v{causal})",
        why=f"{count[2]:,} times a step {scores}{taken}",
        line=most(lines),
        at=most(lines),
        made=fused,
    )


def fused(recording: Recording, axes: Axes) -> Recording:
    """The recording with all attention by hand fused."""
    taken = blocks(recording)
    new: dict[int, tuple[Event, ...]] = {}
    operators: list[Operator] = []
    dropped: set[int] = set()
    for by_hand in _by_hand(recording):
        new |= dict.fromkeys(by_hand.events, ())
        place = by_hand.products[0]
        number = len(recording.operators) + len(operators)
        new[place] = (replace(recording.events[place], operator=number, views=0),)
        operators.append(by_hand.fused)
        for event in (*by_hand.products, *by_hand.inner):
            made = recording.operators[recording.events[event].operator].outputs
            scores = min((t.bytes for t in made if _is_scores(t, by_hand.fused)), default=None)
            if scores is not None:
                dropped |= {block.number for block in taken.get(event, ()) if block.bytes >= scores}
    scores_of = {(row.bytes, row.line) for row in recording.memory if row.block in dropped}
    dropped |= {  # scores of earlier steps, which the caching allocator would keep
        row.block
        for row in recording.memory
        if row.event < 0 and row.bytes > 0 and (row.bytes, row.line) in scores_of
    }
    return rewritten(recording, new, operators=operators, dropped_blocks=frozenset(dropped))


def _is_scores(tensor: Tensor, attention: Operator) -> bool:
    q, k, _ = attention.inputs[-3:]
    return prod(tensor.shape) == prod(q.shape[:3]) * k.shape[2]


def _by_hand(recording: Recording) -> Iterator[_ByHand]:
    rows: defaultdict[tuple[object, ...], list[int]] = defaultdict(list)
    for number, event in enumerate(recording.events):
        if event.kind == "kernel" and not event.graph:
            rows[event.stream, event.phase].append(number)
    for row in rows.values():
        operators = [recording.operators[recording.events[number].operator] for number in row]
        names = [short_name(operator) for operator in operators]
        products = [place for place, name in enumerate(names) if is_product(name)]
        behind = 0
        for place, name in enumerate(names):
            if products[behind:] and products[behind] < place:
                behind += 1
            sides = _SIDES.get(name, 0)
            around = products[max(behind - sides, 0) : behind + sides]
            if sides and len(around) == 2 * sides:
                found = _found(row, operators, around, place)
                if found is not None:
                    yield found


def _found(
    row: Sequence[int], operators: Sequence[Operator], products: Sequence[int], softmax: int
) -> _ByHand | None:
    """The attention of these `products` around a `softmax`, given as places in the row. Return None
    if other kernels lie between them, or if a mask depends on more than positions."""
    given = operators[softmax].inputs
    scores = given[0].shape if given else ()
    fused = _operator([operators[place] for place in products], scores)
    if fused is None:
        return None
    size, plane = prod(scores), prod(scores[-2:])
    moved = {prod(tensor.shape) for tensor in (*fused.inputs, *fused.outputs)}
    before, after = (3, 1) if len(products) == 2 else (1, 3)  # q, k, v and their gradients
    inner, copies, masked = [], [], False
    for place in range(max(products[0] - before, 0), min(products[-1] + after + 1, len(row))):
        operator, within = operators[place], products[0] < place < products[-1]
        sizes = {prod(t.shape) for t in (*operator.inputs, *operator.outputs)}
        if place in products:
            continue
        if short_name(operator) == "clone" and sizes <= moved:
            copies.append(row[place])
        elif (
            within
            and max(sizes, default=0) == size
            and isinstance(kernel_of(operator), MemoryBound)
        ):
            inner.append(row[place])
            masked |= plane in sizes
            if not sizes <= {size, plane, 1}:
                return None  # a tensor that depends on samples or heads is no mask of positions
        elif within and max(sizes, default=0) != plane and not sizes <= moved:
            return None
    flags = {"is_causal": masked and scores[-1] == scores[-2]}
    numbers = tuple(row[place] for place in products)
    return _ByHand(numbers, tuple(inner), tuple(copies), replace(fused, flags=flags), masked)


def _operator(products: Sequence[Operator], scores: Sequence[int]) -> Operator | None:
    """The fused operator that replaces batched `products` around a softmax of `scores` (...,
    queries, keys); None for other products. The width of a head is assumed to be below the length
    of a sequence."""
    backward = len(products) == 4
    if len(scores) < 3 or any(short_name(op) != "bmm" or not op.outputs for op in products):
        return None
    size, (queries, keys) = prod(scores), scores[-2:]
    first, last = products[: len(products) // 2], products[len(products) // 2 :]
    into = [op for op in first if prod(op.outputs[0].shape) == size]
    if not into or not all(any(prod(t.shape) == size for t in op.inputs) for op in last):
        return None
    # The depth of queries times keys; in a backward pass, of the gradient times the values.
    inner = into[0].inputs[0].shape[-1]
    outer = min(last[0].outputs[0].shape[-2:])
    head, value = (outer, inner) if backward else (inner, outer)
    batch = tuple(scores[:-2]) if len(scores) == 4 else (1, prod(scores[:-2]))
    like = replace(products[0].inputs[0], elements=-1)
    q, k, v, out = (
        replace(like, shape=(*batch, length, width))
        for length, width in ((queries, head), (keys, head), (keys, value), (queries, value))
    )
    kind = "efficient" if like.dtype == "float32" else "flash"
    return Operator(
        name=f"aten._scaled_dot_product_{kind}_attention{'_backward' * backward}",
        inputs=(out, q, k, v) if backward else (q, k, v),
        outputs=(q, k, v) if backward else (out,),
        written=sum(tensor.bytes for tensor in ((q, k, v) if backward else (out,))),
    )
