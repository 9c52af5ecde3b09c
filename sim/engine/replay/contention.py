"""Would transfers of a program that was played without a clock have slowed each other?

Alone, traffic moves at the rate of its narrowest link and takes a share of every other link. The
replay is exact as long as the shares on each link never add up to more than one. Otherwise max-min
fairness slows some traffic, and only the clock knows which.
"""

from collections import defaultdict

import numpy as np

from sim.engine.replay.link_uses import Flags, LinkUse, overfull, shares
from sim.engine.replay.writing import Writer


def contends(writer: Writer) -> Flags:
    """Whether traffic asked some link for more than its capacity [programs]."""
    outside = _outside(writer)
    found = np.zeros(len(writer.estimates), dtype=bool)
    for uses in outside.values():
        if not found.all():
            found |= overfull(uses)
    loading: dict[int, list[int]] = defaultdict(list)
    for stage in range(len(writer.estimate.machine.desks)):
        for link in _links_inside(writer, stage):
            loading[link].append(stage)
    shared = {}
    for link, stages in loading.items():
        end = writer.passes_end[stages].max(axis=0)
        beside = [use for use in outside.get(link, ()) if (use.begin < end).any()]
        if beside or len(stages) > 1:
            shared[link] = beside, stages
    for number in np.flatnonzero(~found).tolist() if shared else ():
        links = {
            link: ([use.column(number) for use in beside], stages)
            for link, (beside, stages) in shared.items()
        }
        from sim.engine.replay.contention_inside import overfull_inside  # few links are shared

        found[number] = overfull_inside(writer.column(number), links)
    return found


def _links_inside(writer: Writer, stage: int) -> set[int]:
    """The links that collectives inside a stage's computations load in some column."""
    one_of_each = {id(e.program): e for e in writer.estimates}.values()
    return {
        link
        for e in one_of_each
        for call in e.program.stages[stage].calls_inside
        for link, _ in shares(e.machine.desks[stage].traffic(call, stage), e.machine.links)
    }


def _outside(writer: Writer) -> dict[int, list[LinkUse]]:
    """When traffic outside computations uses each link."""
    uses: dict[int, list[LinkUse]] = {}
    links = [e.machine.links for e in writer.estimates]
    for traffic, begun in (*writer.messages(), *writer.collectives()):
        begin = begun + np.array([of_column.latency for of_column in traffic])
        end = begin + np.array([of_column.seconds for of_column in traffic])
        taken = [dict(shares(*pair)) for pair in zip(traffic, links, strict=True)]
        for link in dict.fromkeys(link for loads in taken for link in loads):
            share = np.array([loads.get(link, 0.0) for loads in taken])
            uses.setdefault(link, []).append(LinkUse(share, begin, end))
    return uses
