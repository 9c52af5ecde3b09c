"""The shape of a folded program, separate from its durations.

The shape says which step waits for which. Programs of equal schedules, stages and microbatches have
equal shapes, however long their passes and transfers take. Equal passes of a role are one class,
and so are equal transfers among the same roles; each class has its durations once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.engine.columns.weights import Floats
from sim.engine.critical_path import joins
from sim.engine.folded import ComputeStep, FoldedProgram, Step
from sim.program.causes import Cause
from sim.program.durations import Duration
from sim.program.operations import COMPUTE_STREAM

PER_COMPUTATION = 4  # device, host, lead - device, wait - device
PER_TRANSFER = 2  # latency, seconds on the links


@dataclass(frozen=True, slots=True)
class ComputeClass:
    """Equal computations of one role; `parts` are seconds by cause."""

    role: int
    kind: str
    chunk: int
    duration: Duration
    parts: tuple[tuple[Cause, float], ...]


@dataclass(frozen=True, slots=True)
class TransferClass:
    """Equal transfers among the same roles; after the `latency` they take `seconds` on links."""

    roles: tuple[int, ...]
    kind: str
    cause: str
    latency: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Shape:
    """A program with the class of each computation (role, index of the step) and of each transfer
    (by number). `key` is equal for equal shapes."""

    program: FoldedProgram
    computations: tuple[ComputeClass, ...]
    transfers: tuple[TransferClass, ...]
    class_of_computation: Mapping[tuple[int, int], int]
    class_of_transfer: Sequence[int]
    key: bytes

    @property
    def parameters(self) -> Floats:
        """The durations in a row. Each class of computations has device, host, lead - device and
        wait - device (0 if the host does not wait). Then each class of transfers has latency and
        seconds on the links."""
        durations = (computation.duration for computation in self.computations)
        rows = [x for duration in durations for x in _parameters(duration)]
        rows += [x for transfer in self.transfers for x in (transfer.latency, transfer.seconds)]
        return np.array(rows)

    def compute_parameter(self, number: int) -> int:
        """The index of the first of the four parameters of a class of computations."""
        return PER_COMPUTATION * number

    def transfer_parameter(self, number: int) -> int:
        """The index of the first of the two parameters of a class of transfers."""
        return PER_COMPUTATION * len(self.computations) + PER_TRANSFER * number


def shape_of(
    program: FoldedProgram,
    factors: Mapping[int, float] | None = None,
    longer: Mapping[tuple[int, int], float] | None = None,
) -> Shape:
    """The shape of a program. Transfers in `factors` take that many times as long on their links.
    Computations (role, index) in `longer` take that many seconds more on the device; the mean of a
    class counts for all its members.

    Raises `InputError` if a role launches work from several streams, since the host's state would
    then depend on times.
    """
    classes: dict[ComputeClass, int] = {}
    of_computation: dict[tuple[int, int], int] = {}
    code: list[int] = [len(program.roles), len(program.transfers)]
    members: list[list[int]] = [[] for _ in program.transfers]
    for number, role in enumerate(program.roles):
        for stream, steps in role.streams.items():
            code += [-1, len(steps), stream == COMPUTE_STREAM]
            for step in steps:
                _check(step, stream, role.role.name)
                if isinstance(step, ComputeStep):
                    class_ = _class(step, number)
                    of_computation[number, step.index] = classes.setdefault(class_, len(classes))
                code += _coded(step, of_computation.get((number, step.index), -1))
                for transfer in joins(step):
                    members[transfer].append(number)
    transfers, of_transfer = _transfers(program, members, factors or {})
    code += [-4, *(transfer.arity for transfer in program.transfers), *of_transfer]
    key = np.array(code, dtype=np.int64).tobytes()
    computations = _prolonged(tuple(classes), of_computation, longer or {})
    return Shape(program, computations, tuple(transfers), of_computation, of_transfer, key)


def _coded(step: Step, kind: int) -> list[int]:
    """A step's properties and dependencies as numbers; `kind` is its class if it computes."""
    if isinstance(step, ComputeStep):
        code = [-2, kind, step.sync, step.cost.duration.waits, len(step.joins), *step.joins]
    else:
        code = [-3, step.joined, step.sync, len(step.transfers), *step.transfers]
    return [*code, step.index, *step.after]


def _class(step: ComputeStep, role: int) -> ComputeClass:
    kind, chunk = (step.action.kind, step.action.chunk) if step.action else (step.label, 0)
    return ComputeClass(role, kind, chunk, step.cost.duration, tuple(step.cost.parts.items()))


def _prolonged(
    classes: tuple[ComputeClass, ...],
    of_computation: Mapping[tuple[int, int], int],
    longer: Mapping[tuple[int, int], float],
) -> tuple[ComputeClass, ...]:
    """The classes, prolonged by the mean of their members' further seconds."""
    if not longer:
        return classes
    counts, seconds = [0] * len(classes), [0.0] * len(classes)
    for step, number in of_computation.items():
        counts[number] += 1
        seconds[number] += longer.get(step, 0.0)
    return tuple(
        replace(class_, duration=_with_more(class_.duration, seconds[n] / counts[n]))
        for n, class_ in enumerate(classes)
    )


def _parameters(duration: Duration) -> tuple[float, ...]:
    return (
        duration.device,
        duration.host,
        duration.lead - duration.device,
        duration.wait - duration.device if duration.waits else 0.0,
    )


def _with_more(duration: Duration, seconds: float) -> Duration:
    device, host, lead, wait = duration
    return Duration(device + seconds, host, lead + seconds, wait + seconds)


def _transfers(
    program: FoldedProgram, members: Sequence[Sequence[int]], factors: Mapping[int, float]
) -> tuple[dict[TransferClass, int], list[int]]:
    classes: dict[TransferClass, int] = {}
    of_transfer = []
    for number, transfer in enumerate(program.transfers):
        transfer_class = TransferClass(
            tuple(members[number]),
            transfer.kind,
            transfer.cause,
            transfer.traffic.latency,
            transfer.traffic.seconds * factors.get(number, 1.0),
        )
        of_transfer.append(classes.setdefault(transfer_class, len(classes)))
    return classes, of_transfer


def _check(step: Step, stream: str, role: str) -> None:
    """Raise `InputError` for a step that the host launches on another stream than the compute
    stream, since the host's state would then depend on times."""
    if stream != COMPUTE_STREAM and (isinstance(step, ComputeStep) or step.sync):
        fault = f"{role} launches {step.name!r} on stream {stream!r}"
        raise InputError("--engine replay", fault, "use --engine clock")
