"""Recomputation: what checkpointing runs again is kept instead, as far as memory goes.

What an again-run stretch leaves for its backward pass is then taken when the forward pass ends: the
peak, which lies there, holds all of it.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from sim.jobs.recorded.axes import Axes
from sim.jobs.recorded.edits.edit import (
    Edit,
    blocks,
    kernel_events,
    line_of,
    most,
    rewritten,
    seconds_of,
)
from sim.jobs.recorded.recording import Event, Recording
from sim.jobs.recorded.setup import Recorded

_SHARES = (1.0, 0.75, 0.5, 0.25)


def edits(setup: Recorded) -> Iterator[Edit]:
    """Nothing run again, or only a share of what is."""
    weights: defaultdict[str, float] = defaultdict(float)
    for recording, _ in setup.stages:
        seconds = seconds_of(recording, setup.time)
        for number, event, _ in kernel_events(recording):
            if event.again:
                weights[line_of(recording, event)] += seconds[number]
    if not weights:
        return
    why = "what is recomputed fits into memory"
    for share in _SHARES:
        few = f"checkpoint only {1 - share:.0%} of the layers"
        yield Edit(
            change="leave out activation checkpointing" if share == 1.0 else few,
            why=why,
            line=most(weights),
            made=partial(kept, share=share),
        )


def kept(recording: Recording, axes: Axes, share: float) -> Recording:
    """So large a share of the stretches that are run again is not, and is held instead."""
    stretches = list(_stretches(recording))
    # The last ones to be run again are of the first layers; either end saves as much.
    chosen = stretches[: round(share * len(stretches))]
    taken = blocks(recording)
    new: dict[int, tuple[Event, ...]] = {}
    moved: dict[int, int] = {}  # blocks, and the events before which they are taken now
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
    rows.sort(key=lambda row: row.event)  # stable: a block is given back behind where it is taken
    return rewritten(recording, new, dropped_blocks=frozenset(dropped), memory=rows)


def _stretches(recording: Recording) -> Iterator[list[int]]:
    """Kernels that are run again, without others between them."""
    stretch: list[int] = []
    for number, event, _ in kernel_events(recording):
        if event.again:
            stretch.append(number)
        elif stretch:
            yield stretch
            stretch = []
    if stretch:
        yield stretch


def _turn(recording: Recording, number: int) -> int:
    """The first event of the backward passes in which an event is."""
    while number and recording.events[number - 1].phase == "backward":
        number -= 1
    return number
