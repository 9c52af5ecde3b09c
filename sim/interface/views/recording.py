"""A recording of a training script in a few lines: what one rank does in a step."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import get_args

from sim.config.units import human_bytes
from sim.hardware.kernels.dispatch import Phase
from sim.interface.document.nodes import Document, Section, Sentence, document, section, table
from sim.jobs.recorded.memory import Memory
from sim.jobs.recorded.recording import Recording
from sim.jobs.recorded.work import work_of
from sim.results.formatting import Cells, count, large, several


def view(recordings: Sequence[Recording]) -> Document:
    """Of each pipeline stage: parameters, FLOPs, kernels by phase, what is sent in which groups,
    and the device's memory."""
    return document("", *map(_rank, recordings))


def _rank(own: Recording) -> Section:
    command = " ".join((own.script, *own.arguments))
    head = f"{command}: rank {own.rank} of {own.world:,}, torch {own.torch}"
    notes = (Sentence(note, "note") for note in own.notes)
    return section(head, table([*_work(own), *_kernels(own), *_sent(own)]), *notes)


def _work(own: Recording) -> Iterator[Cells]:
    done, memory = work_of(own), Memory(own).peak()
    if own.parameters:
        yield "parameters", large(own.parameters), "of the model"
    yield "FLOPs", f"{count(done.model_flops / 1e12)} TFLOP", "of the model, a step of this rank"
    yield "", f"{count(done.executed_flops / 1e12)} TFLOP", f"as executed, most in {done.precision}"
    if done.tokens:
        yield "tokens", f"{done.tokens:,}", f"in {several(done.samples, 'sequence')}"
    if memory.reserved:
        yield "memory", human_bytes(memory.allocated), "allocated at most"
        yield "", human_bytes(memory.reserved), "reserved, of a device without end"


def _kernels(own: Recording) -> Iterator[Cells]:
    found = Counter((e.phase, e.again) for e in own.events if e.kind == "kernel")
    yield "operators", f"{found.total():,}", f"of {len(own.operators):,} kinds and shapes"
    for phase in get_args(Phase):
        again = found[phase, True]
        repeated = f"and {again:,} again" if again else ""
        yield f"  {phase}", f"{found[phase, False]:,}", repeated


def _sent(own: Recording) -> Iterator[Cells]:
    """By kind and group: how often, and bytes in all."""
    often: Counter[tuple[str, str]] = Counter()
    size: Counter[tuple[str, str]] = Counter()
    for event in own.events:
        if event.kind in ("collective", "send", "recv"):
            what = event.name or event.kind, _among(own, event.group, event.peer)
            often[what] += 1
            size[what] += int(event.bytes)
    for (kind, among), times in often.items():
        sent = human_bytes(size[kind, among])
        yield kind.replace("_", "-"), f"{times:,}", f"{among}, {sent} in all"


def _among(own: Recording, group: int, peer: int) -> str:
    if group < 0:
        return f"with rank {peer}"
    axes = own.groups[group].axes
    sizes = " x ".join(f"{size:,}" for _, size in axes)
    apart = " and ".join(f"{stride:,}" for stride, _ in axes)
    return f"among {sizes} ranks {apart} apart" if axes else "alone"
