"""How busy devices and links are over a played step: FLOP/s of each role, bytes a second on links.

An operation spreads its FLOPs, and the bytes of the collectives inside it, evenly over its time; a
transfer spreads its bytes from its beginning to its end. So every rate adds up to what was done.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

import numpy as np

from sim.engine.folded import ComputeStep, FoldedProgram, LinkClass
from sim.engine.timeline import Rate
from sim.engine.tracks import Track

_DIGITS = 9  # of seconds; operations that touch do not overlap

Amounts = list[tuple[float, float, float]]  # begin, end (s), how much in between

MOST_LINKS = 8  # of a kind; those that carry most


def rates(tracks: Iterable[Track], program: FoldedProgram) -> Iterator[Rate]:
    """FLOP/s of the products of each role, then the load of the links that carry most, B/s."""
    work, traffic = amounts(tracks, program)
    for role, spans in work.items():
        yield _rate(role, "products", "FLOP/s", spans)
    links = program.links
    shown: Counter[str] = Counter()
    for link in sorted(traffic, key=lambda link: (-sum(size for *_, size in traffic[link]), link)):
        kind = links[link].name.split()[0]
        shown[kind] += 1
        if shown[kind] <= MOST_LINKS:
            yield _rate(None, _name(links[link]), "B/s", traffic[link])


def amounts(
    tracks: Iterable[Track], program: FoldedProgram
) -> tuple[dict[int, Amounts], dict[int, Amounts]]:
    """FLOPs by role, bytes by class of links: how much from when to when."""
    work: defaultdict[int, Amounts] = defaultdict(list)
    traffic: defaultdict[int, Amounts] = defaultdict(list)
    steps = {
        (role.role.index, name): row for role in program.roles for name, row in role.streams.items()
    }
    sent: set[int] = set()
    for track in tracks:
        begun, arrived = track.begun.tolist(), track.arrived.tolist()
        there = (track.transfers >= 0).tolist()
        rows = zip(
            steps[track.role, track.stream], track.start.tolist(), track.end.tolist(), strict=True
        )
        for n, (step, start, end) in enumerate(rows):
            if isinstance(step, ComputeStep):
                if step.flops:
                    work[track.role].append((start, end, step.flops))
                for link, size in step.carried:
                    traffic[link].append((start, end, size))
                continue
            columns = (column for column, met in enumerate(there[n]) if met)
            for number, column in zip(step.transfers, columns, strict=True):
                if number not in sent:
                    sent.add(number)
                    own = program.transfers[number].traffic
                    for link, load in own.loads:
                        when = begun[n][column], arrived[n][column]
                        traffic[link].append((*when, own.size * load))
    return work, traffic


def _rate(role: int | None, of: str, unit: str, amounts: Amounts) -> Rate:
    """The sum of what is spread over intervals: a step at the beginning and the end of each.

    >>> rate = _rate(0, "products", "FLOP/s", [(0.0, 2.0, 4.0), (1.0, 2.0, 1.0)])
    >>> rate.times.tolist(), rate.values.tolist()
    ([0.0, 1.0, 2.0], [2.0, 3.0, 0.0])
    """
    begin, end, much = np.array(amounts).T
    begin, end = begin.round(_DIGITS), end.round(_DIGITS)
    lasting = end > begin
    begin, end = begin[lasting], end[lasting]
    pace = much[lasting] / (end - begin)
    times, place = np.unique(np.concatenate((begin, end)), return_inverse=True)
    changes = np.zeros(len(times))
    np.add.at(changes, place, np.concatenate((pace, -pace)))
    values = np.cumsum(changes)
    values[np.abs(values) < 1e-9 * values.max(initial=0.0)] = 0.0  # what rounding leaves
    return Rate(role, of, unit, times, values)


def _name(link: LinkClass) -> str:
    return f"{link.name} ({link.count} alike)" if link.count > 1 else link.name
