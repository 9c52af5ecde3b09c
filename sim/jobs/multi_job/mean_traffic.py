"""Paces of jobs that meet: every job beside the mean traffic of the others.

A large company takes too long to play, the phases of jobs that come by and by are not known, and
workers that share updates repeat no step. Each job then finds of a link what the others' mean
traffic leaves of it, at least its fair part: C' = max(C - sum of the others' bytes a step / pace,
C / n). The paces that agree with one another are found by iteration. Two jobs are slowed as in the
mean over all phases; bursts that coincide, or that miss one another, are not seen.

A job is as slow as its most wanting link lets it be: r = min C' / min(C, the most that the job puts
on the link). A step is a maximum of sums of durations, of which some grow with 1 / r; so it is
convex in 1 / r. It is played at r = 0.8^k, and taken as linear in 1 / r between, which is never
faster.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import floor, log

import numpy as np
from numpy.typing import NDArray

from sim.engine.fold import Folding
from sim.engine.play import play
from sim.hardware.cluster.network import Link
from sim.hardware.cluster.topology import Degraded, link_name
from sim.jobs.multi_job.folding import Guest, users_of
from sim.jobs.multi_job.repeated import carried

_ROUNDS, _SAME = 12, 1e-4
_LEVEL = 0.8

Floats = NDArray[np.float64]


def mean_paces(
    guests: Sequence[Guest], alone: Sequence[float]
) -> tuple[list[float], dict[Link, dict[int, float]]]:
    """Seconds of a step of each guest, and the B/s that each puts on the links where they meet."""
    users = users_of(guests)
    sizes = [_sizes(guest) for guest in guests]
    rows = [
        (n, number, sizes[n][own], guests[n].loaded[link])
        for number, (link, by) in enumerate(users.items())
        for n in by
        if sizes[n].get(own := guests[n].place.alike(link))
    ]
    if not rows:
        return list(alone), {}
    guest, link = (np.array([row[column] for row in rows]) for column in (0, 1))
    size, most = (np.array([row[column] for row in rows]) for column in (2, 3))
    each = np.array([guests[0].place.cluster.capacity(name) for name in users])
    fair, capacity = 1.0 / np.bincount(link)[link], each[link]
    meets: list[list[Link]] = [[] for _ in guests]
    for n, number in zip(guest.tolist(), link.tolist(), strict=True):
        meets[n].append(guests[n].place.own(list(users)[number]))
    paces: Floats = np.array(alone)
    for _ in range(_ROUNDS):
        rate = size / paces[guest]
        others = np.bincount(link, rate)[link] - rate
        left = np.maximum(capacity - others, capacity * fair) / np.minimum(most, capacity)
        least = np.ones(len(guests))
        np.minimum.at(least, guest, left)
        before = paces
        found = zip(guests, meets, alone, least.tolist(), strict=True)
        paces = (before + np.array([_seconds(*each) for each in found])) / 2.0
        if np.all(np.abs(paces - before) <= _SAME * paces):
            break
    rates: dict[Link, dict[int, float]] = {name: {} for name in users}
    names = list(users)
    for n, number, bytes_ in zip(guest.tolist(), link.tolist(), size.tolist(), strict=True):
        rates[names[number]][n] = bytes_ / float(paces[n])
    return paces.tolist(), rates


def _sizes(guest: Guest) -> dict[Link, float]:
    """Bytes of a step on each link, by the name that it has in all places like this one."""
    if "sizes" not in guest.known:
        if guest.program is None:
            sent = dict(guest.work(guest.machine)[1])
        else:  # links of a class carry alike
            folding = Folding(guest.program, guest.machine)
            desk, sizes = folding.desk, carried(folding.folded())
            classes = desk.classes.links.tolist()
            sent = {
                own: sizes.get(number, 0.0)
                for own, number in zip(desk.groups.links, classes, strict=True)
            }
        place = guest.place
        guest.known["sizes"] = {place.alike(place.link(own)): size for own, size in sent.items()}
    found: dict[Link, float] = guest.known["sizes"]
    return found


def _seconds(guest: Guest, links: Sequence[Link], alone: float, share: float) -> float:
    """Seconds of a step that finds such a share of what it can use of links of its own names."""
    if share >= 1.0:
        return alone
    level = floor(log(share) / log(_LEVEL))
    wider, narrower = _LEVEL**level, _LEVEL ** (level + 1)
    part = (1.0 / share - 1.0 / wider) / (1.0 / narrower - 1.0 / wider)
    fast = _at(guest, links, level) if level else alone
    return fast + part * (_at(guest, links, level + 1) - fast)


def _at(guest: Guest, links: Sequence[Link], level: int) -> float:
    """Seconds of a step at a level of shares, known of all that are placed alike."""
    place = guest.place
    key = level, frozenset(place.alike(place.link(own)) for own in links)
    if key not in guest.known:
        guest.known[key] = _played(guest, links, _LEVEL**level)
    found: float = guest.known[key]
    return found


def _played(guest: Guest, links: Sequence[Link], share: float) -> float:
    topology, place = guest.machine.topology, guest.place
    sick = []
    for own in links:
        link = place.link(own)
        capacity = place.cluster.capacity(link)
        usable = share * min(guest.loaded[link] / capacity, 1.0)
        sick.append(Degraded(link=link_name(own), factor=1.0 / usable))
    topology = replace(topology, degraded=(*topology.degraded, *sick))
    machine = replace(guest.machine, topology=topology)
    return (
        guest.work(machine)[0] if guest.program is None else play(guest.program, machine).step_time
    )
