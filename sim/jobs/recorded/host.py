"""How long is the host of a recorded step busy? Measured times by operator take precedence over the
stack's times by phase."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

from sim.config.dataclass import dataclass
from sim.hardware.kernels.dispatch import VIEW, OperatorTime, Phase, fused_as_one
from sim.hardware.kernels.profile import Profile
from sim.jobs.recorded.kernels import kernel_of, short_name, tensors_of_a_list
from sim.jobs.recorded.recording import Event, Operator, Recording
from sim.model.kernels import Kernel, OperatorClass

_NAMED = 3  # how many operators without a measured time an answer lists

Measured = Mapping[tuple[str, Phase], OperatorTime]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTimes:
    """Seconds of the host. `step` is the time before a step. An operator takes `launch` of its
    phase for each kernel, plus `operators` of its phase and class. A collective or message takes
    `call`, a CUDA graph takes `graph`. `measured` has operators with measured times."""

    step: float
    launch: Mapping[Phase, float]
    call: float
    graph: float
    operators: Mapping[Phase, Mapping[OperatorClass, float]] = field(default_factory=dict)
    measured: Measured = field(default_factory=dict)

    def of(self, event: Event, operator: Operator, kernel: Kernel) -> float:
        """Return the seconds of an operator with its launches: measured, otherwise the stack's."""
        seconds = self.seconds(event, operator)
        if seconds is not None:
            return seconds
        longer = self.operators.get(event.phase, {}).get(kernel.operator, 0.0)
        return self.launch[event.phase] * kernel.launches + longer * (kernel.launches > 0)

    def seconds(self, event: Event, operator: Operator) -> float | None:
        """Return the measured seconds of an operator with all its launches and the views before it;
        None if the operator was not measured. Recomputed operators count as forward operators."""
        phase: Phase = "forward" if event.again else event.phase
        measured = self.measured.get((fused_as_one(short_name(operator)), phase))
        if measured is None:
            return None
        view = self.measured.get((VIEW, phase))
        views = event.views * view.seconds if view else 0.0
        return measured.of(tensors_of_a_list(operator)) + views


def measured_of(profile: Profile | None) -> Measured:
    """Return the measured operators of a profile, by name and phase."""
    return {(time.operator, time.phase): time for time in profile.operators} if profile else {}


class Coverage(NamedTuple):
    """The `share` of launches whose host's time was measured, and the most frequent operators
    without a measured time (`others`)."""

    share: float
    others: tuple[str, ...]


def coverage(recordings: Sequence[Recording], host: HostTimes) -> Coverage | None:
    """Return the coverage of launches outside of CUDA graphs; None if nothing was measured."""
    if not host.measured:
        return None
    known, others = 0, Counter[str]()
    for recording in recordings:
        launches = [kernel_of(operator).launches for operator in recording.operators]
        for event in recording.events:
            if event.kind != "kernel" or event.graph:
                continue
            operator, count = recording.operators[event.operator], launches[event.operator]
            if host.seconds(event, operator) is not None:
                known += count
            else:
                others[short_name(operator)] += count
    total = known + others.total()
    names = tuple(name for name, _ in others.most_common(_NAMED))
    return Coverage(known / total if total else 0.0, names)
