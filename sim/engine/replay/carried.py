"""The bytes that links carry in a program that was played without a clock."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from sim.engine.clock_transfers import ClockDesk
from sim.engine.fold import Folding
from sim.engine.folded import Carried, LinkClass, Traffic
from sim.engine.lowering import Lowering
from sim.engine.replay.play import Estimate, Played
from sim.engine.tracks import Floats
from sim.program.operations import Collective, Compute

Messages = Iterable[tuple[Sequence[Traffic], Floats]]
OfOperation = Callable[[int, int], Iterable[tuple[Collective, Sequence[Traffic]]]]


def carried(
    folding: Folding,
    played: Played,
    estimate: Estimate,
    messages: Messages,
    traffic: OfOperation,
) -> dict[LinkClass, tuple[float, float]]:
    """The bytes that links carry (`Record.carried`): those of each kind of pass, times the number
    of its passes. `traffic` gives the collectives by kind of pass and number of the operation."""
    busy: defaultdict[int, float] = defaultdict(float)
    sent: defaultdict[int, float] = defaultdict(float)
    desks = estimate.machine.desks
    ranks = [ClockDesk(desk.desk).at(desk.index) for desk in desks]
    lowest = [Lowering(rank, stage, 1.0) for stage, rank in enumerate(ranks)]
    rows = chain(
        _of_passes(estimate, lowest, traffic),
        ((own.carried(), len(begun)) for (own, *_), begun in messages),
        _of_closing(played, lowest),
    )
    for loads, times in rows:
        for link, size, own in loads:
            busy[link] += times * size
            sent[link] += times * own
    return {folding.desk.links[link]: (size, sent[link]) for link, size in busy.items()}


def _of_passes(
    estimate: Estimate, lowest: Sequence[Lowering], traffic: OfOperation
) -> Iterator[tuple[Carried, float]]:
    """Yield the bytes that each operation of a pass puts on links, and how many passes do so."""
    grid = estimate.grid
    counts = np.bincount(grid.kind[grid.kind >= 0]).tolist()
    for kind, ((stage, _), times) in enumerate(zip(grid.kinds, counts, strict=True)):
        for number, step in enumerate(estimate.maps[kind].played):
            if isinstance(step.operation, Compute):
                yield lowest[stage].carried(step.operation.work), times
            for _, (own, *_) in traffic(kind, number):
                yield own.carried(), times


def _of_closing(played: Played, lowest: Sequence[Lowering]) -> Iterator[tuple[Carried, float]]:
    for stage, steps in enumerate(played.closing.steps):
        for step in steps:
            if isinstance(step.operation, Compute):
                yield lowest[stage].carried(step.operation.work), 1.0
            for members, (_, own) in zip(step.members, step.traffic, strict=True):
                if stage == members[0]:
                    yield own.carried(), 1.0
