"""Paces of jobs that meet: every job beside the mean traffic of the others.

A large company takes too long to play, and workers that share updates repeat no step. Each job
then finds of a link what the others' mean traffic leaves of it, at least its fair part:
max(C - sum of the others' bytes a step / pace, C / n). The paces that agree with one another are
found by iteration. Bursts that coincide, or that miss one another, are not seen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sim.engine.fold import Folding
from sim.engine.play import play
from sim.hardware.cluster.network import Link
from sim.hardware.cluster.topology import Degraded, link_name
from sim.jobs.multi_job.folding import Guest, users_of
from sim.jobs.multi_job.repeated import carried

_ROUNDS, _SAME = 12, 1e-4


def mean_paces(
    guests: Sequence[Guest], alone: Sequence[float]
) -> tuple[list[float], dict[Link, dict[int, float]]]:
    """Seconds of a step of each guest, and the B/s that each puts on the links where they meet."""
    users = users_of(guests)
    own = [{link: guest.place.own(link) for link, by in users.items() if n in by}
           for n, guest in enumerate(guests)]  # fmt: skip
    sizes = [_sizes(guest, names) for guest, names in zip(guests, own, strict=True)]
    paces = list(alone)
    for _ in range(_ROUNDS):
        rates = {
            link: {n: sizes[n].get(link, 0.0) / paces[n] for n in by} for link, by in users.items()
        }
        before = list(paces)
        for n, guest in enumerate(guests):
            left = {
                name: _left(guest.place.cluster.capacity(link), rates[link], n)
                for link, name in own[n].items()
                if sizes[n].get(link)
            }
            paces[n] = (before[n] + _beside(guest, left)) / 2.0
        if all(abs(a - b) <= _SAME * a for a, b in zip(paces, before, strict=True)):
            break
    return paces, rates


def _sizes(guest: Guest, names: Mapping[Link, Link]) -> dict[Link, float]:
    """Bytes of a step on each link of the cluster."""
    if guest.program is None:
        sent = guest.work(guest.machine)[1]
        return {link: sent.get(own, 0.0) for link, own in names.items()}
    machine = replace(guest.machine, shared={own: own for own in names.values()})
    folding = Folding(guest.repeated, machine)
    desk, sizes = folding.desk, carried(folding.folded())
    numbers = dict(zip(desk.groups.links, desk.classes.links.tolist(), strict=True))
    return {link: sizes.get(numbers[own], 0.0) for link, own in names.items() if own in numbers}


def _left(capacity: float, rates: Mapping[int, float], number: int) -> float:
    """The share of a link that others leave."""
    others = sum(rate for other, rate in rates.items() if other != number)
    return max(1.0 - others / capacity, 1.0 / len(rates))


def _beside(guest: Guest, left: Mapping[Link, float]) -> float:
    """Seconds of a step that finds such shares of its links."""
    topology = guest.machine.topology
    sick = (Degraded(link=link_name(link), factor=1.0 / share) for link, share in left.items())
    topology = replace(topology, degraded=(*topology.degraded, *sick))
    machine = replace(guest.machine, topology=topology)
    return (
        guest.work(machine)[0] if guest.program is None else play(guest.program, machine).step_time
    )
