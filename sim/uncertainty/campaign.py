"""Features that measured runs share and that a prediction's error depends on."""

from collections.abc import Hashable
from typing import Literal

from sim.config.dataclass import dataclass
from sim.model.kinds import experts_of
from sim.model.model import Model
from sim.parallel.job import Job

Work = Literal["dense", "experts", "adapters", "other", "recorded"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """One software stack on one cluster in one precision, at one kind of work: all weights of a
    dense transformer, a mixture of experts, adapters only (LoRA), another model, or a recording.
    """

    stack: str
    device: str
    generation: str
    topology: str
    precision: str
    work: Work

    @classmethod
    def of(cls, job: Job, topology: str) -> "Campaign":
        """The campaign of a job on a cluster of this name."""
        return cls(
            stack=job.stack.name,
            device=job.device.name,
            generation=job.device.generation,
            topology=topology,
            precision=job.plan.precision,
            work="adapters" if job.plan.lora is not None else work_of(job.model),
        )

    @property
    def groups(self) -> tuple[Hashable, ...]:
        """The groups of campaigns that it is in, from wide to narrow; it is the last."""
        return (
            self.work,
            (self.work, self.stack),
            (self.work, self.stack, self.generation),
            self,
        )


def work_of(model: Model | None) -> Work:
    """What training all weights of a model is; None is a model of which only times are known."""
    if model is None or not model.divided:  # no transformer
        return "other"
    return "experts" if experts_of(model) else "dense"
