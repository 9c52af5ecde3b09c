"""An edit that updates all parameters in one kernel, which reads and writes each state once."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from sim.jobs.recorded.axes import Axes
from sim.jobs.recorded.edits.edit import Edit, blocks, kernel_events, line_of, place_of, rewritten
from sim.jobs.recorded.kernels import short_name, tensors_of_a_list
from sim.jobs.recorded.recording import Operator, Recording, Tensor
from sim.jobs.recorded.setup import Recorded

# The last operation of Adam's update without `fused` (torch/optim/adamw.py): param, exp_avg, denom.
_UPDATES = ("addcdiv_", "_foreach_addcdiv_")
_STEP = Tensor(dtype="float32", width=4, shape=())


def edits(setup: Recorded) -> Iterator[Edit]:
    """Yield the edit that fuses Adam's update."""
    lines = {line for recording, _ in setup.stages for line in _lines(recording)}
    count = sum(len(_kernels(recording)) for recording, _ in setup.stages)
    if lines:
        yield Edit(
            change="make the optimizer with fused=True (Adam and AdamW of torch.optim)",
            why=f"its update takes {count:,} kernels, each of which reads and writes states again",
            line=sorted(lines)[0],
            at=place_of(setup, "optimizer"),
            made=fused,
        )


def fused(recording: Recording, axes: Axes) -> Recording:
    """The recording with a single update kernel for each data type of parameters."""
    numbers = _kernels(recording)
    if not numbers:
        return recording
    operators = [_update(tensors) for tensors in _parameters(recording, numbers).values()]
    first, inside = numbers[0], set(numbers)
    event = replace(recording.events[first], views=0)
    begin = len(recording.operators)
    new = dict.fromkeys(numbers, ()) | {
        first: tuple(replace(event, operator=begin + n) for n in range(len(operators)))
    }
    allocated = blocks(recording)
    temporary = {
        block.number
        for number in inside
        for block in allocated.get(number, ())
        if block.given is not None
    }
    return rewritten(recording, new, operators=operators, dropped_blocks=frozenset(temporary))


def _lines(recording: Recording) -> set[str]:
    return {
        line_of(recording, event)
        for _, event, operator in kernel_events(recording)
        if event.phase == "optimizer" and short_name(operator) in _UPDATES
    }


def _kernels(recording: Recording) -> list[int]:
    """The event numbers of the optimizer's kernels at lines that update parameters."""
    lines = _lines(recording)
    return [
        number
        for number, event, _ in kernel_events(recording)
        if event.phase == "optimizer" and line_of(recording, event) in lines
    ]


def _parameters(recording: Recording, numbers: Sequence[int]) -> dict[str, list[Tensor]]:
    """The parameters that are updated, by data type."""
    found: defaultdict[str, list[Tensor]] = defaultdict(list)
    for number in numbers:
        operator = recording.operators[recording.events[number].operator]
        if short_name(operator) in _UPDATES:
            lists = "lists" in operator.flags
            for tensor in operator.inputs[: tensors_of_a_list(operator) if lists else 1]:
                found[tensor.dtype].append(tensor)
    return found


def _update(parameters: Sequence[Tensor]) -> Operator:
    """Torch's fused AdamW, as it is recorded. Its operands are parameters, gradients, two moments
    and steps. It writes all operands but the steps; gradients, because it may scale them."""
    size = sum(tensor.bytes for tensor in parameters)
    steps = (_STEP,) * len(parameters)
    return Operator(
        name="aten._fused_adamw_",
        inputs=(*parameters, *parameters, *parameters, *parameters, *steps),
        written=4 * size,
        flags={"lists": 5},
    )
