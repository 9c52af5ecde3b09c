"""A scenario of a recorded training script."""

from dataclasses import dataclass
from typing import ClassVar

from sim.hardware.stack import Stack
from sim.jobs.recorded.recording import Recording
from sim.scenario.scenario import BaseScenario


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedScenario(BaseScenario):
    """A training script whose step was recorded (`sim capture`): `record` is the file, or its
    recordings, one a pipeline stage. The recording says what runs, so nothing is left to plan.
    `allocator` are settings of torch's caching allocator as in PYTORCH_ALLOC_CONF, instead of
    those that the script had."""

    kind: ClassVar[str] = "sim.jobs.recorded.kind"

    stack: str | Stack = "pytorch-eager"
    record: str | tuple[Recording, ...]
    allocator: str | None = None
