"""Workers, nodes and servers that the tables of `[sharing]` name: each is there, and named once."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import inf

from sim.config.errors import InputError
from sim.config.units import human_seconds
from sim.jobs.sharing.tables import Fault, StragglerCause, WorkerGroup


def check(
    groups: Sequence[WorkerGroup],
    stragglers: Sequence[StragglerCause],
    faults: Sequence[Fault],
    workers: int,
    nodes: int,
    where: str,
) -> None:
    """Raise `InputError` for a worker or node that is not there or is named twice, and for a
    failure of what is away."""
    found = [("group", "rank", [rank for group in groups for rank in group.ranks])]
    for cause in stragglers:
        found.append(("straggler", "rank", list(cause.ranks or ())))
        found.append(("straggler", "node", list(cause.nodes or ())))
    for key, kind, named in found:
        _check_named(key, kind, named, workers if kind == "rank" else nodes, where)
        if twice := [one for one, times in Counter(named).items() if times > 1]:
            what = f"{key}: {kind} {twice[0]} is named twice"
            raise InputError(where, what, "name each once")
    ranks = [fault.rank for fault in faults if fault.rank is not None]
    _check_named("fault", "rank", ranks, workers, where)
    _check_absences(faults, where)


def _check_named(key: str, kind: str, named: Iterable[int], count: int, where: str) -> None:
    for one in named:
        if one >= count:
            there = (
                "there is no worker of rank" if kind == "rank" else "there are no workers on node"
            )
            raise InputError(where, f"{key}: {there} {one}", f"use 0 to {count - 1}")


def _check_absences(faults: Sequence[Fault], where: str) -> None:
    """Nothing fails while it is away; what has a replica is back as soon as it is missed."""
    moments: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for fault in faults:
        name = f"server {fault.server}" if fault.rank is None else f"rank {fault.rank}"
        never = 0.0 if fault.rank is None else inf
        moments[name].append((fault.at, never if fault.after is None else fault.after))
    for name, moment in moments.items():
        moment.sort()
        for (at, after), (again, _) in pairwise(moment):
            if again <= at + after:
                away = f"away from {human_seconds(at)} on"
                what = f"fault: {name} fails at {human_seconds(again)}, when it is {away}"
                raise InputError(where, what, "leave one out, or let it be back before")
