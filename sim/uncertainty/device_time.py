"""How much of a job's device time comes from a profile, and how much from the model."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import field

from sim.config.dataclass import dataclass
from sim.hardware.kernels.time import sourced_time
from sim.model.kernels import Kernel
from sim.model.operators import kernels_of
from sim.parallel.job import Job
from sim.parallel.weight_update import optimizer_kernels

MOST_WARNINGS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTime:
    """Shares of a step's kernel seconds by source. `outside` has by kernel name, the longest
    kernels first, the first size outside of the measured range. The seconds of such kernels count
    as the model's, because a profile extrapolates by the model."""

    shares: dict[str, float]
    outside: dict[str, str] = field(default_factory=dict)

    @property
    def warnings(self) -> Iterator[str]:
        """A line for each kernel outside of the range in which its profile was measured."""
        for name, where in list(self.outside.items())[:MOST_WARNINGS]:
            yield f"{name} leaves the range of the profile: {where}"
        more = len(self.outside) - MOST_WARNINGS
        if more > 0:
            yield f"{more} more kernels leave the range of the profile"


def device_time(job: Job) -> DeviceTime:
    """Shares of the kernel seconds of one step of the whole job, idle devices not counted."""
    if not job.device.profile:
        return DeviceTime(shares={"model": 1.0})
    sources = {"profile": 0.0, "model": 0.0}
    outside: dict[str, str] = {}
    spent: defaultdict[str, float] = defaultdict(float)
    for kernel, count in _kernels(job).items():
        timed = sourced_time(kernel, job.kernels_on, job.stack.attention)
        sources["model" if timed.outside else timed.source] += count * timed.seconds
        if timed.outside:
            outside.setdefault(kernel.name, timed.outside)
            spent[kernel.name] += count * timed.seconds
    total = sum(sources.values())
    return DeviceTime(
        shares={source: seconds / total for source, seconds in sources.items()},
        outside={name: outside[name] for name in sorted(spent, key=lambda name: -spent[name])},
    )


def _kernels(job: Job) -> "Counter[Kernel]":
    """Return the kernels of all stages and how often a replica runs each in a step."""
    kernels: Counter[Kernel] = Counter()
    for stage, chunks in enumerate(job.chunks):
        slots = Counter(slot for chunk in chunks for slot in chunk.slots)
        for slot, count in slots.items():
            block = job.block(*slot)
            for kernel in kernels_of((*block.forward, *block.recompute, *block.backward)):
                kernels[kernel] += count * job.plan.microbatches
        kernels.update(optimizer_kernels(job, stage))
    return kernels
