"""The passes of a recorded step, by which pictures and traces colour and name what it computes."""

from collections.abc import Iterator

from sim.jobs.recorded.recording import Recording
from sim.program.actions import Action


def pieces_of(own: Recording) -> tuple[int, ...]:
    """The pieces of the model that its rank holds, in their order."""
    return tuple(sorted({one.piece for one in own.passes})) or (0,)


def passes_of(own: Recording) -> Iterator[Action | None]:
    """The pass of each event; None for the optimizer, and for what runs between passes.

    A schedule's own passes are recorded. Any other script's are told by the phases: the next
    microbatch begins with the forward pass behind a backward pass. Where ranks send one another
    messages, forward passes may follow one another, and their numbers are not known (-1).
    """
    if own.passes:
        chunks = {piece: chunk for chunk, piece in enumerate(pieces_of(own))}
        actions = [Action(p.kind, p.microbatch, chunks[p.piece]) for p in own.passes]
        for event in own.events:
            yield actions[event.within] if event.within >= 0 else None
        return
    numbered = all(event.kind not in ("send", "recv") for event in own.events)
    microbatch, before = 0 if numbered else -1, "forward"
    for event in own.events:
        if event.phase == "optimizer":
            yield None
            continue
        if numbered and event.phase == "forward" and before == "backward":
            microbatch += 1
        before = event.phase
        yield Action("F" if event.phase == "forward" else "B", microbatch)
