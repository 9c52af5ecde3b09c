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
from sim.engine.costs import Costs
from sim.engine.folded import Team
from sim.engine.lowering import Lowering
from sim.program.durations import Duration
from sim.program.memory import runs
from sim.program.operations import Collective, Segment, Work

Floats = NDArray[np.float64]


def teams(roles: Mapping[int, Lowering]) -> dict[int, Team]:
    """The teams of all roles, by number."""
    tables: dict[tuple[int, ...], Tables] = {}
    links: dict[tuple[tuple[int, ...], int], tuple[int, ...]] = {}
    found: dict[int, Team] = {}
    for role in roles.values():
        for number, (numbers, work) in role.teams.items():
            if number not in found:
                members = [roles[member] for member in numbers]
                alike = tuple(
                    id(member.costs(work)) for member in members
                )  # as long as roles are kept
                if alike not in tables:
                    tables[alike] = Tables(members, [member.costs(work) for member in members])
                place = numbers, id(work)
                if place not in links:
                    links[place] = _links(members, work)
                found[number] = Team(numbers, tables[alike].of(work), links[place])
    return found


def _links(members: Sequence[Lowering], work: Work) -> tuple[int, ...]:
    """The links on which others could disturb a computation of a team."""
    loads = (
        load
        for member in members
        for call, _ in member.known.content(work)[1]
        if member.desk.has_rivals(scope_of(call, member.stage))
        for load in member.desk.traffic(call, member.stage).loads
    )
    return tuple(sorted({link for link, _ in loads}))


class Tables:
    """The tables of computations of teams that are alike; equal parts are worked out once."""

    def __init__(self, members: Sequence[Lowering], costs: Sequence[Costs]) -> None:
        self.members, self.costs, self.size = members, costs, len(members)
        # Keys are identities: what they stand for is kept, and so they stay its own.
        self._known: dict[int, tuple[Work | Segment | Collective, Floats]] = {}
        self._whole: dict[int, tuple[Work, Floats]] = {}

    def of(self, work: Work) -> Floats:
        """The table of a computation, with what it loses to the collectives beside it."""
        known = self._whole.get(id(work))
        if known is None:
            known = self._whole[id(work)] = work, self._with_lost(work)
        return known[1]

    def _with_lost(self, work: Work) -> Floats:
        table = self._of(work)
        if not work.beside:
            return table
        return _then(table, self._computed([own.lost(work).duration for own in self.costs]))

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
        table = self._computed([own.disturbed(item).duration for own in self.costs])
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
