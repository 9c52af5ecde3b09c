"""Host seconds of calls of torch, and the operators that each call dispatches.

Forward passes are timed on rows of several kinds of layers, as in a model. A host that repeats a
single call would find the code in its cache and be up to twice as fast.

A backward pass is timed over many calls of one layer. The time of the backward pass of a single
call is subtracted, which removes the fixed cost of a pass. The seconds of all calls are then
multiplied by one factor, since the backward pass of a mixed row takes longer than the sum of its
calls.

On a GPU, fewer launches are in flight than its queue holds, so the host never waits for the GPU
while it is timed; it waits between two timings. On a CPU, the time includes the operators' own
arithmetic on a few dozen numbers.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import pairwise
from random import Random
from statistics import median
from typing import Any

from sim.analysis.calibration.timing.clock import Call, Timing, steadiest, summary
from sim.analysis.calibration.timing.host_suite import (
    LISTS,
    SHAPE,
    LayerCall,
    OptimizerCall,
    layers,
    optimizers,
)
from sim.analysis.calibration.timing.launches import wait_of
from sim.config.dataclass import dataclass
from sim.config.grouped import grouped
from sim.hardware.kernels.dispatch import VIEW, Phase, fused_as_one
from sim.jobs.recorded.kernels import is_free, is_shape

IN_A_ROW = 100  # the most calls of a layer that are differentiated together
LAUNCHES = 200  # the most operators in these calls, with up to 5 kernels each; CUDA queues 1024
REPEATS = 15
ORDERS = 15  # random orders of all layers; each order is cut into rows
KINDS, LAYERS = 8, 4  # layers of a row, and how often the row repeats them
_READ = "_local_scalar_dense"  # the operator that makes the host wait for a number of the device


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTime:
    """A call in a phase: its operators, and the host's `seconds` for the call. A call on a list of
    tensors takes `each` further seconds per tensor. `spread` is the interquartile range divided by
    the median; `calls` is the number of timed calls."""

    name: str
    phase: Phase
    operators: Mapping[str, int]
    seconds: float
    each: float = 0.0
    spread: float = 0.0
    calls: int = 0

    @property
    def of_longest(self) -> float:
        """Seconds of a call on the longest list that was timed."""
        return self.seconds + self.each * LISTS[-1]


def host_times(device: str, passes: int = 1) -> list[HostTime]:
    """Return all calls of the suite in its order, with the shortest time of several passes."""
    return quickest(row for _ in range(passes) for row in _one_pass(device))


def _one_pass(device: str) -> Iterator[HostTime]:
    calls = layers(device)
    forward, wholes = _forward(calls, device)
    alone = {call.name: _backward(call, device) for call in calls}
    pairs = ((sum(alone[name].seconds for name in names), whole) for names, whole in wholes)
    longer = median([whole / known for known, whole in pairs if known] or [1.0])
    yield from forward
    yield from (
        replace(row, seconds=longer * row.seconds) for row in alone.values() if row.operators
    )
    yield from (_of_optimizer(call, calls, device) for call in optimizers())


def quickest(times: Iterable[HostTime]) -> list[HostTime]:
    """Return the shortest time of each call and phase, since other work comes and goes."""
    by_call = grouped(((row.name, row.phase), row) for row in times)
    return [min(group, key=lambda row: row.of_longest) for group in by_call.values()]


def _forward(
    calls: Sequence[LayerCall], device: str
) -> tuple[list[HostTime], list[tuple[list[str], float]]]:
    """Return the time of each call among other calls. Also return the names of each row's calls,
    with the seconds of the row's backward pass."""
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    wholes = []
    for seed in range(ORDERS + 1):
        order = Random(seed).sample(calls, len(calls))
        for place in range(0, len(order), KINDS):
            row = order[place : place + KINDS] * LAYERS
            spent, whole = _row(row, device)
            if seed:  # the first order warms up
                wholes.append(([call.name for call in row], whole))
                for call, duration in zip(row, spent, strict=True):
                    seconds[call.name].append(duration)
    found = []
    for call in calls:
        count, _ = _passes(call, device, 1, _counted(device))
        timing, samples = summary(seconds[call.name]), len(seconds[call.name])
        host_time = HostTime(
            name=call.name, phase="forward", operators=count, seconds=timing.seconds,
            spread=timing.spread, calls=samples,
        )  # fmt: skip
        found.append(host_time)
    return found, wholes


def _row(row: Sequence[LayerCall], device: str) -> tuple[list[float], float]:
    """Return the seconds of each call of a row, and the seconds of the row's backward pass."""
    import torch

    made = [call.make() for call in row]
    x, y = (torch.zeros(SHAPE, device=device, requires_grad=True) for _ in range(2))
    clocked, kept = _clocked(wait_of(device)), []
    wait_of(device)()
    stamps = [time.perf_counter()]
    for call, layer in zip(row, made, strict=True):
        if call.chained:
            y = layer(y)
        else:
            kept.append(layer(x))
        stamps.append(time.perf_counter())
    ends = [y, *kept]
    gradients = [torch.ones_like(end) for end in ends]
    whole = clocked(lambda: torch.autograd.backward(ends, gradients))
    return [after - before for before, after in pairwise(stamps)], whole


def _backward(call: LayerCall, device: str) -> HostTime:
    """Return the seconds of the backward pass per call of a layer."""
    (_, once), (_, twice) = (_passes(call, device, number, _counted(device)) for number in (1, 2))
    count = Counter(twice) - Counter(once)
    number = max(2, min(IN_A_ROW, LAUNCHES // max(count.total(), 1)))
    wait = wait_of(device)
    first, whole = (
        _steady(lambda n=n: _passes(call, device, n, _clocked(wait))[1])  # type: ignore[misc]
        for n in (1, number)
    )
    return HostTime(
        name=call.name, phase="backward", operators=count,
        seconds=max((whole.seconds - first.seconds) / (number - 1), 0.0),
        spread=whole.spread, calls=number * REPEATS,
    )  # fmt: skip


def _passes(
    call: LayerCall, device: str, number: int, watched: Callable[[Call], Any]
) -> tuple[Any, Any]:
    """Call `number` layers in a row, then differentiate all of them. Return what `watched` reports
    of both. At the beginning, weights have no gradients, as after `zero_grad`."""
    import torch

    made = [call.make() for _ in range(number)]
    given = [torch.zeros(SHAPE, device=device, requires_grad=True) for _ in range(number)]
    ends: list[Any] = []

    def forward() -> None:
        y = given[0]
        for layer, x in zip(made, given, strict=True):
            y = layer(y if call.chained else x)
            if not call.chained:
                ends.append(y)
        if call.chained:
            ends.append(y)

    first = watched(forward)
    gradients = [torch.ones_like(end) for end in ends]
    return first, watched(lambda: torch.autograd.backward(ends, gradients))


def _of_optimizer(call: OptimizerCall, others: Sequence[LayerCall], device: str) -> HostTime:
    """Return the seconds of a call as a constant plus `each` per tensor, from lists of two lengths.
    Before every step, a forward and backward pass of other calls is run."""
    clocked, found = _clocked(wait_of(device)), []
    for length in LISTS:
        step = _made(call, device, length)

        def seconds(step: Call = step) -> float:
            _row(others, device)
            return clocked(step)

        found.append(_steady(seconds))
    each = max((found[1].seconds - found[0].seconds) / (LISTS[1] - LISTS[0]), 0.0)
    return HostTime(
        name=call.name,
        phase="optimizer",
        operators=_counted(device, call.counters)(step),
        seconds=max(found[0].seconds - each * LISTS[0], 0.0),
        each=each,
        spread=max(row.spread for row in found),
        calls=REPEATS * len(LISTS),
    )


def _made(call: OptimizerCall, device: str, length: int) -> Call:
    import torch

    weights = [torch.nn.Parameter(torch.zeros(SHAPE, device=device)) for _ in range(length)]
    for weight in weights:
        weight.grad = torch.zeros_like(weight)
    return call.make(weights)


def _clocked(wait: Call) -> Callable[[Call], float]:
    """Return a function that times the host's part of a call. The device is idle when the call
    starts, and the time ends when the call returns."""

    def seconds(call: Call) -> float:
        wait()
        began = time.perf_counter()
        call()
        spent = time.perf_counter() - began
        wait()
        return spent

    return seconds


def _steady(run: Callable[[], float]) -> Timing:
    """Return the median time of a run, after a run to warm up."""
    run()
    return steadiest(lambda: summary([run() for _ in range(REPEATS)]))


def _counted(device: str, counters: bool = False) -> Callable[[Call], Counter[str]]:
    """Return a function that counts the operators that a call dispatches to the device. Operators
    that launch kernels are counted by name, views as `VIEW`."""
    import torch

    dispatch_mode: Any = import_module("torch.utils._python_dispatch").TorchDispatchMode
    leaves = import_module("torch.utils._pytree").tree_leaves

    def counted(call: Call) -> Counter[str]:
        found = Counter[str]()

        class Mode(dispatch_mode):  # type: ignore[misc]
            def __torch_dispatch__(
                self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                out = func(*args, **(kwargs or {}))
                named = [leaf for leaf in leaves((args, out)) if isinstance(leaf, torch.Tensor)]
                name = func._overloadpacket.__name__
                there = [tensor for tensor in named if tensor.device.type == device]
                counter = counters and all(tensor.dim() == 0 for tensor in named)
                if func.namespace != "aten" or not there or counter or name == _READ:
                    return out
                if is_shape(name, view=func.is_view):
                    found[VIEW] += 1
                elif not is_free(name, view=func.is_view):
                    found[fused_as_one(name)] += 1
                return out

        with Mode():
            call()
        return found

    return counted
