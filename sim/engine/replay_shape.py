"""The shape of a score and its durations, kept apart.

The shape is what waits for what; scores of the same schedule, stages and microbatches share it,
whatever their passes and transfers last. Equal passes of one role are one class, and so are equal
transfers among the same roles; durations are counted once a class.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sim.config.errors import InputError
from sim.engine.folded import Pass, Score, Step, Transfer
from sim.engine.replay_weights import Floats

COMPUTE = "compute"
PER_PASS, PER_TRANSFER = 3, 2  # device, host, lead beyond device; latency, seconds on the links


@dataclass(frozen=True, slots=True)
class PassClass:
    """Equal passes of one role; `shares` are its seconds by cause."""

    part: int
    phase: str
    chunk: int
    device: float
    host: float
    lead: float
    parts: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class TransferClass:
    """Equal transfers among the same roles; `seconds` on the links once the latency is over."""

    parts: tuple[int, ...]
    kind: str
    cause: str
    latency: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Shape:
    """Steps as (part, stream, step) with a class each; `key` is equal for equal shapes."""

    score: Score
    passes: tuple[PassClass, ...]
    transfers: tuple[TransferClass, ...]
    class_of_pass: Mapping[tuple[int, int], int]
    class_of_transfer: Sequence[int]
    key: bytes

    @property
    def parameters(self) -> Floats:
        """The durations: per class of passes device, host and lead - device, then per class of
        transfers latency and seconds on the links."""
        rows = [x for one in self.passes for x in (one.device, one.host, one.lead - one.device)]
        rows += [x for one in self.transfers for x in (one.latency, one.seconds)]
        return np.array(rows)

    def pass_parameter(self, number: int) -> int:
        """Where the three parameters of a class of passes begin."""
        return PER_PASS * number

    def transfer_parameter(self, number: int) -> int:
        """Where the two parameters of a class of transfers begin."""
        return PER_PASS * len(self.passes) + PER_TRANSFER * number


def shape_of(score: Score, factors: Mapping[int, float] | None = None) -> Shape:
    """The shape of a score; transfers in `factors` take that many times as long on their links.

    Raises `InputError` where a stream's passes depend on when another stream's run, which no
    static graph can tell.
    """
    passes: dict[PassClass, int] = {}
    of_pass: dict[tuple[int, int], int] = {}
    code: list[int] = [len(score.parts), len(score.transfers)]
    members: list[list[int]] = [[] for _ in score.transfers]
    for number, part in enumerate(score.parts):
        for stream, steps in part.streams.items():
            code += [-1, len(steps), stream == COMPUTE]
            for step in steps:
                _check(step, stream, part.role.name)
                if isinstance(step, Pass):
                    kind = _class(step, number)
                    of_pass[number, step.index] = passes.setdefault(kind, len(passes))
                code += _coded(step, of_pass.get((number, step.index), -1))
                for transfer in _joined(step):
                    members[transfer].append(number)
    transfers, of_transfer = _transfers(score, members, factors or {})
    code += [-4, *(one.arity for one in score.transfers), *of_transfer]
    key = np.array(code, dtype=np.int64).tobytes()
    return Shape(score, tuple(passes), tuple(transfers), of_pass, of_transfer, key)


def _coded(step: Step, kind: int) -> list[int]:
    """What a step waits for and starts, as numbers; `kind` is its class if it is a pass."""
    if isinstance(step, Pass):
        code = [-2, kind, step.sync, len(step.joins), *step.joins]
    else:
        code = [-3, step.joined, step.sync, len(step.transfers), *step.transfers]
    return [*code, step.index, *step.after]


def _joined(step: Step) -> tuple[int, ...]:
    """The transfers that a step joins."""
    if isinstance(step, Pass):
        return step.joins
    return () if step.joined else step.transfers


def alone(transfer: Transfer, score: Score) -> float:
    """Seconds of a transfer on idle links, after its latency."""
    if transfer.size <= 0.0 or not transfer.loads:
        return 0.0
    return transfer.size / min(score.links[link].capacity / load for link, load in transfer.loads)


def _class(step: Pass, part: int) -> PassClass:
    return PassClass(part, step.phase, step.chunk, step.device, step.host, step.lead, step.parts)


def _transfers(
    score: Score, members: Sequence[Sequence[int]], factors: Mapping[int, float]
) -> tuple[dict[TransferClass, int], list[int]]:
    classes: dict[TransferClass, int] = {}
    seconds: dict[tuple[float, tuple[tuple[int, float], ...]], float] = {}
    of_transfer = []
    for number, one in enumerate(score.transfers):
        load = (one.size, one.loads)
        if load not in seconds:
            seconds[load] = alone(one, score)
        kind = TransferClass(
            tuple(members[number]),
            one.kind,
            one.cause,
            one.latency,
            seconds[load] * factors.get(number, 1.0),
        )
        of_transfer.append(classes.setdefault(kind, len(classes)))
    return classes, of_transfer


def _check(step: Step, stream: str, role: str) -> None:
    """One stream a role launches from the host; on others its state would depend on the time."""
    if stream != COMPUTE and (isinstance(step, Pass) or step.sync):
        what = f"{role} launches {step.name!r} on stream {stream!r}"
        raise InputError("--engine replay", what, "use --engine clock")
