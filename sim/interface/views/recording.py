"""Show a recording of a training script in a few lines: the work of a rank in a step."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import get_args

from sim.config.readable import human_bytes
from sim.hardware.kernels.dispatch import Phase
from sim.interface.document.nodes import Document, Section, Sentence, document, section, table
from sim.jobs.recorded.memory import Memory
from sim.jobs.recorded.recording import Recording
from sim.jobs.recorded.work import work_of
from sim.results.formatting import Cells, count, large, several


def view(recordings: Sequence[Recording]) -> Document:
    """Show for each recorded rank its parameters, FLOPs, memory, kernels by phase, and bytes sent
    by group."""
    return document("", *map(_rank, recordings))


def _rank(recording: Recording) -> Section:
    command = " ".join((recording.script, *recording.arguments))
    head = f"{command}: rank {recording.rank} of {recording.world:,}, torch {recording.torch}"
    notes = (Sentence(note, "note") for note in recording.notes)
    return section(
        head, table([*_work(recording), *_kernels(recording), *_sent(recording)]), *notes
    )


def _work(recording: Recording) -> Iterator[Cells]:
    done, memory = work_of(recording), Memory(recording).peak()
    if recording.parameters:
        yield "parameters", large(recording.parameters), "of the model"
    yield "FLOPs", f"{count(done.model_flops / 1e12)} TFLOP", "of the model, this rank's step"
    yield "", f"{count(done.executed_flops / 1e12)} TFLOP", f"as executed, most in {done.precision}"
    if done.tokens:
        yield "tokens", f"{done.tokens:,}", f"in {several(done.samples, 'sequence')}"
    if memory.reserved:
        yield "memory", human_bytes(memory.allocated), "allocated at most"
        yield "", human_bytes(memory.reserved), "reserved, on a device without a memory limit"


def _kernels(recording: Recording) -> Iterator[Cells]:
    found = Counter((e.phase, e.again) for e in recording.events if e.kind == "kernel")
    yield "operators", f"{found.total():,}", f"of {len(recording.operators):,} kinds and shapes"
    for phase in get_args(Phase):
        again = found[phase, True]
        repeated = f"and {again:,} again" if again else ""
        yield f"  {phase}", f"{found[phase, False]:,}", repeated


def _sent(recording: Recording) -> Iterator[Cells]:
    """Yield the number and the total bytes of messages, by kind and group."""
    often: Counter[tuple[str, str]] = Counter()
    size: Counter[tuple[str, str]] = Counter()
    for event in recording.events:
        if event.kind in ("collective", "send", "recv"):
            key = event.name or event.kind, _among(recording, event.group, event.peer)
            often[key] += 1
            size[key] += int(event.bytes)
    for (kind, among), times in often.items():
        sent = human_bytes(size[kind, among])
        yield kind.replace("_", "-"), f"{times:,}", f"{among}, {sent} in all"


def _among(recording: Recording, group: int, peer: int) -> str:
    if group < 0:
        return f"with rank {peer}"
    axes = recording.groups[group].axes
    sizes = " x ".join(f"{size:,}" for _, size in axes)
    apart = " and ".join(f"{stride:,}" for stride, _ in axes)
    return f"among {sizes} ranks {apart} apart" if axes else "alone"
