"""Teams: roles that meet in the collectives of a computation, which is played as one step.

If a rank of a tensor-parallel group is slow, the group is several roles that wait for one another
at every collective. Nothing else influences a computation between its beginning and its end. So its
ends only depend on the times r at which the devices are ready and the times h at which the hosts
are free. A (max, +) matrix turns (r_1 ... r_n, h_1 ... h_n) into the ends. It is the product of the
matrices of segments and collectives (Baccelli et al. 1992, Synchronization and Linearity, 1.2).
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
                # Ids are unique while the roles exist.
                alike = tuple(id(member.costs(work)) for member in members)
                if alike not in tables:
                    tables[alike] = Tables(members, [member.costs(work) for member in members])
                place = numbers, id(work)
                if place not in links:
                    links[place] = _links(members, work)
                found[number] = Team(numbers, tables[alike].of(work), links[place])
    return found


def _links(members: Sequence[Lowering], work: Work) -> tuple[int, ...]:
    """The links on which other traffic could disturb a team's computation."""
    loads = (
        load
        for member in members
        for call, _ in member.known.content(work)[1]
        if member.desk.has_rivals(scope_of(call, member.stage))
        for load in member.desk.traffic(call, member.stage).loads
    )
    return tuple(sorted({link for link, _ in loads}))


class Tables:
    """The (max, +) matrices, or tables, of computations of equal teams. Equal parts share one."""

    def __init__(self, members: Sequence[Lowering], costs: Sequence[Costs]) -> None:
        self.members, self.costs, self.size = members, costs, len(members)
        # Keys are ids of objects. The values keep the objects alive, so no id is used twice.
        self._known: dict[int, tuple[Work | Segment | Collective, Floats]] = {}
        self._whole: dict[int, tuple[Work, Floats]] = {}

    def of(self, work: Work) -> Floats:
        """The table of a computation, with the time that it loses to collectives beside it."""
        known = self._whole.get(id(work))
        if known is None:
            known = self._whole[id(work)] = work, self._with_lost(work)
        return known[1]

    def _with_lost(self, work: Work) -> Floats:
        table = self._of(work)
        if not work.beside:
            return table
        return _then(table, self._computed([costs.lost(work).duration for costs in self.costs]))

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
        table = self._computed([costs.disturbed(item).duration for costs in self.costs])
        if not item.beside:
            return table
        # No role begins before its host is free.
        launched = self._computed([Duration()] * self.size)
        return _then(launched, self._met(item.beside, table))

    @property
    def _nothing(self) -> Floats:
        return self._computed([Duration(lead=-np.inf)] * self.size)

    def _computed(self, durations: Sequence[Duration]) -> Floats:
        """The table of roles that each compute by themselves, for these durations."""
        table = np.full((2 * self.size, 2 * self.size), -np.inf)
        for index, (device, host, lead, wait) in enumerate(durations):
            launches = self.size + index
            table[index, [index, launches]] = device, lead
            table[launches, [index, launches]] = wait, host
        return table

    def _met(self, calls: Sequence[Collective], beside: Floats) -> Floats:
        """The table of collectives that run beside the work of `beside`. A collective begins when
        all its roles are ready and their hosts are free."""
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
    """The table of one computation followed by another: their (max, +) product.

    >>> swap = np.array([[-np.inf, 1.0], [2.0, -np.inf]])
    >>> _then(swap, swap).tolist()
    [[3.0, -inf], [-inf, 3.0]]
    """
    product: Floats = (behind[:, :, None] + first[None]).max(axis=1)
    return product


def _repeated(table: Floats, times: int) -> Floats:
    """The table of a computation that runs `times` times (at least once) in a row."""
    if times == 1:
        return table
    half = _repeated(table, times // 2)
    twice = _then(half, half)
    return _then(twice, table) if times % 2 else twice
