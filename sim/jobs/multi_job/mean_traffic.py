"""Paces of jobs that meet in unknown phases: each pace is the mean over all phases.

Three cases use this mean: companies (jobs that meet) that are too large to play, jobs that arrive
over time in unknown phases, and workers that share updates. These workers repeat no step.

A job uses a link for a share of its time: the seconds in which the link carries the job's bytes,
divided by the seconds of a step. While the job uses the link, K of the other jobs use it, too,
independently of one another. All jobs on the link share it evenly. Alone, the job sends with the
speed m: the capacity C of the link, or the bandwidth of the job's NICs if this is lower. Beside the
other jobs, the job gets the mean share r = E[min(1, C / (m (1 + K)))] of m.

The link with the least r sets the pace of a job. All the job's links of kinds that it shares with
other jobs are assumed to be as narrow as this link. A step is a maximum of sums of durations. Some
durations grow with 1 / r, so the step's seconds are convex in 1 / r. The step is played at
r = 0.8^k for whole numbers k. Between these values, its seconds are interpolated linearly in 1 / r,
so they are never too low. Paces that agree with one another are found by iteration. Bursts that
coincide, or that miss one another, are not modelled.
"""

from collections.abc import Sequence, Set
from dataclasses import replace
from math import floor, log

import numpy as np
from numpy.typing import NDArray

from sim.engine.fold import Folding
from sim.engine.play import play
from sim.hardware.cluster.link_names import link_name
from sim.hardware.cluster.network import Link
from sim.hardware.cluster.topology import Degraded
from sim.jobs.multi_job.folding import Guest, users_of
from sim.jobs.multi_job.repeated import carried

_ROUNDS, _SAME = 60, 1e-9  # the most iterations; the relative change of paces that ends them
_LEVEL = 0.8  # the ratio of two neighbouring shares r at which steps are played

Floats = NDArray[np.float64]


def mean_paces(
    guests: Sequence[Guest], alone: Sequence[float]
) -> tuple[list[float], dict[Link, dict[int, float]]]:
    """Seconds of a step of each guest, and the B/s that each guest puts on shared links."""
    users = users_of(guests)
    sizes = [_sizes(guest) for guest in guests]
    rows = [
        (n, number, sizes[n][alike], guests[n].loaded[link])
        for number, (link, by) in enumerate(users.items())
        for n in by
        if sizes[n].get(alike := guests[n].place.alike(link))
    ]
    if not rows:
        return list(alone), {}
    names = list(users)
    guest, link = (np.array([row[column] for row in rows]) for column in (0, 1))
    size, most = (np.array([row[column] for row in rows]) for column in (2, 3))
    capacity = np.array([guests[0].place.cluster.capacity(name) for name in names])[link]
    speed = np.minimum(most, capacity)
    meets: list[set[str]] = [set() for _ in guests]
    for n, number in zip(guest.tolist(), link.tolist(), strict=True):
        meets[n].add(names[number][0])
    paces, share = np.array(alone), np.ones(len(guests))
    for _ in range(_ROUNDS):
        active = np.minimum(size / (share[guest] * speed) / paces[guest], 1.0)
        share = np.ones(len(guests))
        np.minimum.at(share, guest, _found(active, link, capacity / speed))
        before = paces
        found = zip(guests, meets, alone, share.tolist(), strict=True)
        paces = (before + np.array([_seconds(*each) for each in found])) / 2.0
        if np.all(np.abs(paces - before) <= _SAME * paces):
            break
    rates: dict[Link, dict[int, float]] = {name: {} for name in users}
    for n, number, bytes_ in zip(guest.tolist(), link.tolist(), size.tolist(), strict=True):
        rates[names[number]][n] = bytes_ / float(paces[n])
    return paces.tolist(), rates


def _found(active: Floats, link: NDArray[np.int64], room: Floats) -> Floats:
    """The mean share r of its speed that each row (a guest on a link) gets. A guest uses its link
    for the share `active` of the time. The link carries `room` such guests at full speed. Rows of a
    link are neighbours.

    >>> link, room = np.array([0, 0, 1]), np.array([1.0, 2.0, 1.0])
    >>> _found(np.array([1.0, 0.5, 0.2]), link, room).round(12).tolist()
    [0.75, 1.0, 1.0]
    """
    most = int(np.bincount(link).max()) | 1  # an odd number, so no factor below is 0
    turns = np.exp(2j * np.pi * np.arange(most) / most)
    factors = np.log(1.0 + active[:, None] * (turns - 1.0))
    first = np.diff(link, prepend=-1) > 0
    others = np.add.reduceat(factors, np.flatnonzero(first))[np.cumsum(first) - 1] - factors
    chance = np.fft.fft(np.exp(others)).real / most  # the chances of 0, 1, 2, ... other guests
    found: Floats = (chance * np.minimum(room[:, None] / np.arange(1, most + 1), 1.0)).sum(axis=1)
    return found


def _sizes(guest: Guest) -> dict[Link, float]:
    """Bytes of a step on each link, by the name that the link has in all places with the same
    pattern (`Place.alike`)."""
    if "sizes" not in guest.known:
        if guest.program is None:
            sent = dict(guest.work(guest.machine)[1])
        else:  # links of a class carry equal bytes; links that other jobs may load keep a class
            shared = dict.fromkeys(map(guest.place.own, guest.loaded))
            folding = Folding(guest.program, replace(guest.machine, shared=shared))
            desk, sizes = folding.desk, carried(folding.folded())
            classes = desk.classes.links.tolist()
            sent = {
                link: sizes.get(number, 0.0)
                for link, number in zip(desk.groups.links, classes, strict=True)
            }
        place = guest.place
        guest.known["sizes"] = {place.alike(place.link(link)): size for link, size in sent.items()}
    found: dict[Link, float] = guest.known["sizes"]
    return found


def _seconds(guest: Guest, kinds: Set[str], alone: float, share: float) -> float:
    """Seconds of a step if the guest gets a `share` of its speed on all links of these `kinds`."""
    if share >= 1.0:
        return alone
    level = floor(log(share) / log(_LEVEL))
    wider, narrower = _LEVEL**level, _LEVEL ** (level + 1)
    part = (1.0 / share - 1.0 / wider) / (1.0 / narrower - 1.0 / wider)
    fast = _at(guest, kinds, level) if level else alone
    return fast + part * (_at(guest, kinds, level + 1) - fast)


def _at(guest: Guest, kinds: Set[str], level: int) -> float:
    """Seconds of a step with the share r = 0.8^`level`; guests that are placed alike share the
    result."""
    key = level, frozenset(kinds)
    if key not in guest.known:
        guest.known[key] = _played(guest, kinds, _LEVEL**level)
    found: float = guest.known[key]
    return found


def _played(guest: Guest, kinds: Set[str], share: float) -> float:
    topology, sizes, sick = guest.machine.topology, _sizes(guest), []
    for link, most in guest.loaded.items():
        if link[0] in kinds and sizes.get(guest.place.alike(link)):
            usable = share * min(most / guest.place.cluster.capacity(link), 1.0)
            sick.append(Degraded(link=link_name(guest.place.own(link)), factor=1.0 / usable))
    topology = replace(topology, degraded=(*topology.degraded, *sick))
    machine = replace(guest.machine, topology=topology)
    return (
        guest.work(machine)[0] if guest.program is None else play(guest.program, machine).step_time
    )
