"""Kernels in a row become segments: device time, host time, and how far the host must lead."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from sim.model.kernels import Gemm, Item, Kernel, Overlap
from sim.program import Collective, Segment

KernelTime = Callable[[Kernel], float]


def segments(
    items: Iterable[Item],
    *,
    name: str,
    cause: str,
    time: KernelTime,
    launch: float,
    call: float = 0.0,
) -> tuple[Segment | Collective, ...]:
    """Join the kernels between two collectives into one `Segment` each.

    `time(kernel)` is its device time (s), `launch` the host's cost (s) of one kernel launch,
    `call` of one collective, which is issued at the end of the segment before it.
    """
    done: list[Segment | Collective] = []
    run = _Run()
    for item in items:
        if isinstance(item, Collective):
            run.add(0.0, call, 1)
            done += [*run.segment(name, cause), item]
            run = _Run()
        elif isinstance(item, Overlap):
            run.add(0.0, call, 1)
            done += [*run.segment(name, cause), *_beside(item, name, cause, time, launch)]
            run = _Run()
        else:
            run.add(time(item), launch, _launches(item))
    return (*done, *run.segment(name, cause))


def _beside(
    item: Overlap, name: str, cause: str, time: KernelTime, launch: float
) -> list[Segment | Collective]:
    run = _Run()
    for kernel in item.kernels:
        run.add(time(kernel), launch, _launches(kernel))
    return [replace(one, beside=(item.collective,)) for one in run.segment(name, cause)]


def _launches(kernel: Kernel) -> int:
    return 1 if isinstance(kernel, Gemm) else kernel.launches


class _Run:
    """Kernels so far; composes (device, host, lead) as `sim.program.Segment` defines them."""

    def __init__(self) -> None:
        self.device = self.host = self.lead = 0.0

    def add(self, device: float, launch: float, launches: int) -> None:
        host = launch * launches
        # Of n equal kernels, either every one waits for its launch or only the first does.
        lead = max(host + device / max(launches, 1), launch + device)
        self.lead = max(self.lead + device, self.host + lead)
        self.device += device
        self.host += host

    def segment(self, name: str, cause: str) -> list[Segment]:
        if self.lead == 0.0:
            return []
        return [Segment(name=name, cause=cause, device=self.device, host=self.host, lead=self.lead)]
