"""An edit that makes CUDA graphs: the host launches the kernels of a graph at once, not one by
one."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from sim.jobs.recorded.axes import Axes
from sim.jobs.recorded.edits.edit import Edit, kernel_events, line_of, most, place_of, rewritten
from sim.jobs.recorded.recording import Event, Recording
from sim.jobs.recorded.setup import Recorded


def edits(setup: Recorded) -> Iterator[Edit]:
    """Yield the edit that makes CUDA graphs of forward and backward passes."""
    often = Counter[str]()
    for recording, _ in setup.stages:
        often.update(
            line_of(recording, event)
            for _, event, _ in kernel_events(recording)
            if not event.graph and event.phase != "optimizer"
        )
    if often:
        yield Edit(
            change="capture forward and backward as CUDA graphs: "
            'torch.compile(model, mode="reduce-overhead") or torch.cuda.make_graphed_callables',
            why=f"the host launches their {often.total():,} kernels one by one",
            line=most(often),
            at=place_of(setup, "wrapper", "optimizer"),
            made=graphed,
        )


def graphed(recording: Recording, axes: Axes) -> Recording:
    """The recording in which consecutive kernels of a phase form a graph. Collectives, messages and
    waits of the host end a graph."""
    numbers = iter(range(1 + max(e.graph for e in recording.events), 1 << 30))
    new: dict[int, tuple[Event]] = {}
    graph, before = 0, ""
    for number, event in enumerate(recording.events):
        if event.kind in ("collective", "send", "recv", "sync") or event.phase != before:
            graph, before = next(numbers), event.phase
        if event.kind == "kernel" and not event.graph and event.phase != "optimizer":
            new[number] = (replace(event, graph=graph),)
    return rewritten(recording, new)
