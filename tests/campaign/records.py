"""Laws of played records: what links carry and what memories hold, at every moment."""

import random
from collections import defaultdict
from typing import Any

import numpy as np

from sim.config.errors import InputError
from sim.engine.play import play
from sim.engine.record import Record
from sim.engine.spans import amounts
from sim.kind import load
from sim.scenario.setup import from_scenario
from tests.campaign.job import SAME, Job, same

_WINDOWS = 40  # of a link that are looked at
_WAYS = ("up", "down")
_DUST = 64.0  # bytes of sums of shares, which are no whole numbers


def over_capacity(record: Record) -> str:
    """A link and a window of a record in which more bytes are sent, from begin to end, than the
    link can carry; empty where there is none."""
    program = record.program()
    _, traffic = amounts(record.tracks, program)
    for number, sent in traffic.items():
        link = program.links[number]
        begin, end, size, _ = np.array(sent).T
        order = np.argsort(end)
        begin, end, size = begin[order], end[order], size[order]
        for since in np.unique(begin)[:: max(len(begin) // _WINDOWS, 1)]:
            inside = begin >= since - 1e-12
            carried = np.cumsum(size[inside])
            room = link.capacity * (end[inside] - since)
            worst = int(np.argmax(carried - room * (1.0 + SAME))) if inside.any() else 0
            if inside.any() and carried[worst] > room[worst] * (1.0 + 1e-6) + 1.0:
                until = end[inside][worst]
                return (
                    f"{link.name}: {carried[worst]:.6g} B from {since:.6g} to {until:.6g} s, "
                    f"room for {room[worst]:.6g}"
                )
    return ""


def capacity(job: Job, chance: random.Random) -> str:
    """No link carries more than it can, at any time."""
    setup = from_scenario(load(job.write()))
    return over_capacity(play(setup.program, setup.machine, engine="clock"))


def carried(record: Record) -> dict[str, list[tuple[float, int]]]:
    """What each link carries, and how many are alike, by the first word of their names."""
    program = record.program()
    found: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
    for number, sent in amounts(record.tracks, program)[1].items():
        link = program.links[number]
        found[link.name.split()[0]].append((sum(size for *_, size in sent), link.count))
    return found


def arrives(job: Job, chance: random.Random) -> str:
    """Bytes that leave devices and nodes arrive at others; whoever plays a step sends the same."""
    setup = from_scenario(load(job.write()))
    played = carried(play(setup.program, setup.machine, engine="clock"))
    for kind in (name for name in played if name in ("port-up", "nic-up")):
        up, down = (sum(size * n for size, n in played[f"{kind[:-2]}{way}"]) for way in _WAYS)
        if said := same(up, down):
            return f"{kind}: {said}"
    try:
        other = play(setup.program, setup.machine, engine="replay")
    except InputError:  # contends, so that only the clock plays it: rank by rank, then
        other = play(setup.program, setup.machine, engine="clock", unfold=True)
    found = carried(other)
    told = ((kind, same(max(found[kind])[0], max(sent)[0])) for kind, sent in played.items())
    return next((f"{kind}: {said}" for kind, said in told if said), "")


def memory_closes(job: Job, chance: random.Random) -> str:
    """No part of a memory is ever below nothing, the fullest moment is the one that is reported,
    and a step ends with what it began with."""
    result: Any = job.result()
    peaks = []
    for curve in result.memory_curves:
        if curve.bytes.min() < -_DUST:
            part = curve.parts[int(curve.bytes.min(axis=0).argmin())]
            return f"stage {curve.stage}: {part} is at {curve.bytes.min():.0f} B"
        if (np.diff(curve.times) < 0.0).any():
            return f"stage {curve.stage}: its times go back"
        if curve.total.max() > curve.peak * (1.0 + SAME):
            return f"stage {curve.stage}: {curve.total.max():.0f} B above the peak {curve.peak:.0f}"
        begun, ended = curve.bytes[0], curve.bytes[-1]
        if (abs(ended - begun) > _DUST).any():
            part = curve.parts[int(abs(ended - begun).argmax())]
            gap = float((ended - begun)[curve.parts.index(part)])
            return f"stage {curve.stage}: {gap:.0f} B of {part} are left over"
        peaks.append(curve.peak)
    return same(result.memory_per_gpu["total"], max(peaks))
