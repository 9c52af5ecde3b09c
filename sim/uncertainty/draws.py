"""Drawn step times: each class of work has a factor of its own, and each draw is a column.

The factors are lognormal with the sigmas of `sim.uncertainty.intervals.Sigmas` (a profile's
residuals if there is a profile). Every draw is a column of durations. The computation of a pass is
split into products, attention and memory-bound kernels in the proportions of its stage's kernels.
Its communication and all transfers take the factor of collectives, launches the factor of the host.
One compiled graph evaluates all columns.

The interval of a result uses a first-order approximation, the classes' shares of the critical path,
which needs no compilation. The draws show how good this approximation is.
"""

from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.engine.columns.contention import clocked_contention
from sim.engine.columns.program import ColumnProgram
from sim.engine.columns.shape import ComputeClass, Shape, TransferClass
from sim.engine.columns.weights import Floats
from sim.engine.fold import fold
from sim.engine.machine import Machine
from sim.program.program import Program
from sim.scenario.setup import PlanSetup
from sim.uncertainty.intervals import Sigmas
from sim.uncertainty.work_shares import mix
from sim.variability.laws import generator

KINDS = ("gemm", "attention", "stream", "collective", "host")
LATENCY = "latency of messages"
_HOST = KINDS.index("host")


@dataclass(frozen=True, slots=True)
class Split:
    """Durations [parameters] of a program, and each class's part of them [parameters, classes]."""

    columns: ColumnProgram
    kinds: tuple[str, ...]
    by_kind: Floats

    def times(self, factors: Floats) -> Floats:
        """Step times (s) of columns whose classes are slower by `factors` [classes, columns]."""
        parameter = self.columns.parameters[:, None]
        return self.columns.times(parameter + self.by_kind @ (factors - 1.0))


def bandwidth(cause: str) -> str:
    """Return the name of the class of links that carry transfers of a cause."""
    return f"bandwidth: {cause}"


OfTransfer = Callable[[TransferClass], tuple[str, str]]


def as_collectives(transfer: TransferClass) -> tuple[str, str]:
    """Return classes of a transfer's latency and of its seconds on links: "collective" for both."""
    return "collective", "collective"


def by_cause(transfer: TransferClass) -> tuple[str, str]:
    """Return classes of a transfer's latency, and of its seconds on links by its cause."""
    return LATENCY, bandwidth(transfer.cause)


def split(machine: Machine, program: Program, of_transfer: OfTransfer = as_collectives) -> Split:
    """Compile a program's step, and split its durations into `KINDS` and the classes that
    `of_transfer` names. Transfers that share links are slowed as measured in one run on the clock.
    Raises `InputError` for programs that cannot be compiled."""
    folded = fold(program, machine)
    contention = clocked_contention(folded)
    columns = ColumnProgram(folded, factors=contention.factors, longer=contention.longer)
    named = [of_transfer(transfer) for transfer in columns.shape.transfers]
    kinds = tuple(dict.fromkeys([*KINDS, *chain.from_iterable(named)]))
    return Split(columns, kinds, _by_kind(columns.shape, program, kinds, named))


def drawn(setup: PlanSetup, sigmas: Sigmas, count: int = 200, *, seed: int = 0) -> Floats:
    """Draw `count` step times (s), in pairs of opposite errors; a seed repeats them."""
    one_side = generator(seed, "calibration").standard_normal((len(KINDS), (count + 1) // 2))
    errors = np.concatenate([one_side, -one_side], axis=1)[:, :count]
    spread = np.array([getattr(sigmas, kind) for kind in KINDS])
    return split(setup.machine, setup.program).times(np.exp(spread[:, None] * errors))


def _by_kind(
    shape: Shape, program: Program, kinds: Sequence[str], named: Sequence[tuple[str, str]]
) -> Floats:
    found = np.zeros((len(shape.parameters), len(kinds)))
    for number, computation in enumerate(shape.computations):
        first = shape.compute_parameter(number)
        stage = shape.program.roles[computation.role].role.stage
        found[first : first + 4, : len(KINDS)] = _of_pass(
            computation, _device(computation, program, stage)
        )
    for number, own_kinds in enumerate(named):
        first = shape.transfer_parameter(number)
        for parameter, kind in enumerate(own_kinds, first):
            found[parameter, kinds.index(kind)] = shape.parameters[parameter]
    return found


def _device(compute_class: ComputeClass, program: Program, stage: int) -> Floats:
    """Return a pass's seconds on the device by class."""
    found = np.zeros(len(KINDS))
    for cause, seconds in compute_class.parts:
        for kind, share in mix(program, stage, cause).items():
            if kind not in KINDS:
                fault = f"its layers were {kind} as a whole, so their single kernels are unknown"
                raise InputError("this step", fault, "ask about a model whose layers are described")
            found[KINDS.index(kind)] += share * seconds
    return found


def _of_pass(compute_class: ComputeClass, device: Floats) -> Floats:
    """Return the classes' seconds in device, host, lead and wait of a pass [4, classes].

    Lead and wait are without the device's seconds. Where launches take longer than kernels, the
    lead consists of all launches and of the kernels that still run after them. Otherwise it
    consists of the time before the first kernel, and of all kernels.
    """
    seconds = compute_class.duration
    host = seconds.host * np.eye(len(KINDS))[_HOST]
    lead = seconds.lead - seconds.device
    # The time between the host's wait and the end has the classes of the whole pass; it is the
    # host's if nothing runs on the device.
    beyond = seconds.wait - seconds.device if seconds.waits else 0.0
    work = device / seconds.device if seconds.device else np.eye(len(KINDS))[_HOST]
    wait = beyond * work
    if seconds.host > seconds.device > 0.0:
        left = max(seconds.lead - seconds.host, 0.0) / seconds.device
        launches = host * min(seconds.lead / seconds.host, 1.0)
        return np.array([device, host, launches + (left - 1) * device, wait])
    return np.array([device, host, lead * np.eye(len(KINDS))[_HOST], wait])
