"""Teams: roles that meet in the collectives of a computation, which is played as one step.

Where a rank of a tensor-parallel group is slow, its group is several roles that wait for one
another at every collective. Between the beginning of a computation and its end nothing else has a
say, so that its ends follow from when all of them are ready r and their hosts free h: a matrix of
(max, +) on (r_1 ... r_n, h_1 ... h_n), the product of those of its segments and collectives
(Baccelli et al. 1992, Synchronization and Linearity, 1.2).
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sim.engine.communicators import scope_of
from sim.engine.folded import Team
from sim.engine.lowering import Lowering
from sim.program.durations import Duration
from sim.program.memory import runs
from sim.program.operations import Collective, Segment, Work

Floats = NDArray[np.float64]


def teams(roles: Mapping[int, Lowering]) -> dict[int, Team]:
    """The teams of all roles, by number."""
    tables: dict[tuple[int, ...], Tables] = {}
    found: dict[int, Team] = {}
    for role in roles.values():
        for number, (members, work) in role.teams.items():
            if number not in found:
                if members not in tables:
                    tables[members] = Tables([roles[member] for member in members])
                found[number] = Team(members, *tables[members].of(work))
    return found


class Tables:
    """The tables of computations of one team; equal parts are worked out once."""

    def __init__(self, members: Sequence[Lowering]) -> None:
        self.members, self.size = members, len(members)
        self._whole: dict[int, tuple[Work, Floats, tuple[int, ...]]] = {}
        # Keys are identities: what they stand for is kept, and so they stay its own.
        self._known: dict[int, tuple[Work | Segment | Collective, Floats]] = {}

    def of(self, work: Work) -> tuple[Floats, tuple[int, ...]]:
        """The table of a computation, with what it loses to the collectives beside it, and the
        links on which others could disturb it."""
        known = self._whole.get(id(work))
        if known is None:
            known = self._whole[id(work)] = work, self._with_lost(work), self._links(work)
        return known[1:]

    def _with_lost(self, work: Work) -> Floats:
        table = self._of(work)
        if not work.beside:
            return table
        return _then(
            table, self._computed([member.costs.lost(work).duration for member in self.members])
        )

    def _links(self, work: Work) -> tuple[int, ...]:
        loads = (
            load
            for member in self.members
            for call in work.collectives()
            if member.desk.has_rivals(scope_of(call, member.stage))
            for load in member.desk.traffic(call, member.stage).loads
        )
        return tuple(sorted({link for link, _ in loads}))

    def _of(self, item: Work | Segment | Collective) -> Floats:
        known = self._known.get(id(item))
        if known is None:
            known = self._known[id(item)] = item, self._made(item)
        return known[1]

    def _made(self, item: Work | Segment | Collective) -> Floats:
        if isinstance(item, Work):
            table = self._nothing
            for inner, times in runs(item.items):
                table = _then(table, _repeated(self._of(inner), times))
            return table
        if isinstance(item, Collective):
            return self._met([item], self._nothing)
        table = self._computed([member.costs.disturbed(item).duration for member in self.members])
        if not item.beside:
            return table
        launched = self._computed(
            [Duration()] * self.size
        )  # nobody begins before its host is there
        return _then(launched, self._met(item.beside, table))

    @property
    def _nothing(self) -> Floats:
        return self._computed([Duration(lead=-np.inf)] * self.size)

    def _computed(self, durations: Sequence[Duration]) -> Floats:
        """Every role by itself."""
        table = np.full((2 * self.size, 2 * self.size), -np.inf)
        for index, (device, host, lead, wait) in enumerate(durations):
            launches = self.size + index
            table[index, [index, launches]] = device, lead
            table[launches, [index, launches]] = wait, host
        return table

    def _met(self, calls: Sequence[Collective], beside: Floats) -> Floats:
        """Collectives that begin when all who take part and their hosts have come, and whatever
        runs beside them."""
        table = beside.copy()
        for index, member in enumerate(self.members):
            for call in calls:
                seconds = member.desk.traffic(call, member.stage).alone
                alone = member.desk.among_equals(call, member.stage)
                for other in (index,) if alone else range(self.size):
                    come = [other, self.size + other]
                    table[index, come] = np.maximum(table[index, come], seconds)
        return table


def _then(first: Floats, behind: Floats) -> Floats:
    """One table behind another: the product of (max, +).

    >>> swap = np.array([[-np.inf, 1.0], [2.0, -np.inf]])
    >>> _then(swap, swap).tolist()
    [[3.0, -inf], [-inf, 3.0]]
    """
    product: Floats = (behind[:, :, None] + first[None]).max(axis=1)
    return product


def _repeated(table: Floats, times: int) -> Floats:
    """So many times in a row, at least once."""
    if times == 1:
        return table
    half = _repeated(table, times // 2)
    twice = _then(half, half)
    return _then(twice, table) if times % 2 else twice
