"""An edit that keeps activations which checkpointing would recompute, as far as memory allows.

A stretch of recomputed kernels makes tensors for its backward pass. The edit allocates these
tensors at the end of the forward pass instead, where the peak of memory lies.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import groupby

from sim.jobs.recorded.axes import Axes
from sim.jobs.recorded.edits.edit import (
    Edit,
    blocks,
    kernel_events,
    most,
    rewritten,
    seconds_by_line,
)
from sim.jobs.recorded.recording import Event, Recording
from sim.jobs.recorded.setup import Recorded

_SHARES = (1.0, 0.75, 0.5, 0.25)


def edits(setup: Recorded) -> Iterator[Edit]:
    """Yield edits that keep the activations of all recomputed stretches, or of a share of them."""
    weights = seconds_by_line(setup, lambda event, _: event.again)
    if not weights:
        return
    why = "the recomputed activations fit into memory"
    for share in _SHARES:
        few = f"checkpoint only {1 - share:.0%} of the layers"
        yield Edit(
            change="leave out activation checkpointing" if share == 1.0 else few,
            why=why,
            line=most(weights),
            made=partial(kept, share=share),
        )


def kept(recording: Recording, axes: Axes, share: float) -> Recording:
    """The recording without a share of its recomputed stretches, whose tensors stay in memory."""
    stretches = list(_stretches(recording))
    # The first stretches belong to the last layers; other stretches would save as much.
    chosen = stretches[: round(share * len(stretches))]
    taken = blocks(recording)
    new: dict[int, tuple[Event, ...]] = {}
    moved: dict[int, int] = {}  # by block: the event before which it is allocated now
    dropped: set[int] = set()
    for stretch in chosen:
        turn = _turn(recording, stretch[0])
        for number in range(stretch[0], stretch[-1] + 1):
            if number in stretch or recording.events[number].kind in ("collective", "done"):
                new[number] = ()
            for block in taken.get(number, ()):
                if block.given is not None and block.given <= stretch[-1] + 1:
                    dropped.add(block.number)
                else:
                    moved[block.number] = turn
    rows = [
        replace(row, event=moved[row.block]) if row.bytes > 0 and row.block in moved else row
        for row in recording.memory
    ]
    rows.sort(key=lambda row: row.event)  # a stable sort: allocations stay before frees
    return rewritten(recording, new, dropped_blocks=frozenset(dropped), memory=rows)


def _stretches(recording: Recording) -> Iterator[list[int]]:
    """Yield runs of recomputed kernels that follow one another without other kernels between."""
    for again, kernels in groupby(kernel_events(recording), key=lambda kernel: kernel[1].again):
        if again:
            yield [number for number, *_ in kernels]


def _turn(recording: Recording, number: int) -> int:
    """The number of the first event in the unbroken row of backward events up to an event."""
    while number and recording.events[number - 1].phase == "backward":
        number -= 1
    return number
