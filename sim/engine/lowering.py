"""Lowering: the operations of a stage become the steps of a role.

A computation is one step. Collectives inside it that run among equals are part of its cost; where
other traffic of the job can come upon their links, the step keeps its items, and the clock plays
them one by one while it does. Collectives among unlike roles (a slow rank in a tensor-parallel
group) are steps of their own, unless a computation is played by a team of roles: then it is one
step, and another one in which the role waits for the others.
"""

from collections.abc import Iterable
from dataclasses import replace

from sim.engine.communicators import scope_of
from sim.engine.costs import Cost, Costs
from sim.engine.folded import CommunicateStep, ComputeStep, Item, Loads, Step, Traffic
from sim.engine.transfers import Desk
from sim.program.actions import Action
from sim.program.causes import Cause
from sim.program.durations import Duration
from sim.program.memory import added
from sim.program.operations import (
    Call,
    Collective,
    Communicate,
    Compute,
    Operation,
    Segment,
    Work,
)
from sim.program.runs import runs

Content = tuple[float, Loads]  # FLOPs, and bytes on each link
Flows = tuple[tuple[Traffic, Cause], ...]  # what an item puts on the network, and why


class Lowering:
    """The operations of a stage as the steps of a role in `streams`; with `together` roles that
    meet within a computation are played as teams. `costs` are those of the role's work, `teams` the
    roles and the computations of those that it is in, by their numbers."""

    def __init__(self, desk: Desk, stage: int, slowdown: float, *, together: bool = False) -> None:
        self.desk, self.stage, self.together = desk, stage, together
        self.streams: dict[str, list[Step]] = {}
        self.teams: dict[int, tuple[tuple[int, ...], Work]] = {}
        links = desk.links_of(stage)
        self.costs = Costs(links, slowdown=slowdown)
        self._count = 0
        self._index: dict[str, int] = {}
        # Keys are identities: what they stand for is kept, and so they stay its own.
        self._inner: dict[int, tuple[Work, _Inner]] = {}
        self._contents: dict[int, tuple[Work, Content]] = {}
        self._items_known: dict[int, tuple[Segment | Collective, Cost, Cost | None, Flows]] = {}

    def add(self, operation: Operation, action: Action | None) -> None:
        """Write one more operation, that of an action if it belongs to any."""
        after = tuple([self._index[str(name)] for name in operation.after])
        stream = self.streams.setdefault(operation.stream, [])
        if isinstance(operation, Communicate):
            transfers = self._transfers(_named(operation.calls, operation.name))
            step = CommunicateStep(
                self._next(), operation.name, transfers, after, False, operation.sync
            )
            stream.append(step)
        elif (call := self._look(operation.work).team) is not None:
            stream.extend(self._in_team(operation, action, after, call))
        elif self._look(operation.work).apart:
            stream.extend(self._apart(operation, action, after))
        else:
            stream.append(self._whole(operation, action, after))
        self._index[operation.name] = stream[-1].index

    def _next(self) -> int:
        self._count += 1
        return self._count - 1

    def _whole(
        self,
        operation: Compute,
        action: Action | None,
        after: tuple[int, ...],
        team: int | None = None,
    ) -> ComputeStep:
        """A computation as one step; that of a role in a `team` is the first of two, and the bytes
        of the whole team are those of its first role."""
        work = operation.work
        inner, (flops, carried) = self._look(work), self._content(work)
        alone = team is None
        return ComputeStep(
            self._next(),
            operation.name if alone else f"{operation.name}.0",
            self.costs.of(work),
            after,
            operation.sync and alone,
            action,
            "" if action else work.name,
            (),
            team,
            inner.items,
            inner.links,
            flops,
            carried if alone or self.desk.role == inner.roles[0] else (),
        )

    def _content(self, work: Work) -> Content:
        """FLOPs of work, and the bytes that its collectives put on links."""
        known = self._contents.get(id(work))
        if known is None:
            flops, carried = 0.0, dict[int, float]()
            for item, times in runs(work.items):
                own, sizes = self._content_of(item)
                flops += times * own
                carried = added(carried, {link: times * size for link, size in sizes})
            known = self._contents[id(work)] = work, (flops, tuple(carried.items()))
        return known[1]

    def _content_of(self, item: Work | Segment | Collective) -> Content:
        if isinstance(item, Work):
            return self._content(item)
        calls = (item,) if isinstance(item, Collective) else item.beside
        each = (self._traffic(call) for call in calls)
        carried = added(*({link: t.size * load for link, load in t.loads} for t in each))
        return 0.0 if isinstance(item, Collective) else item.flops, tuple(carried.items())

    def _look(self, work: Work) -> "_Inner":
        known = self._inner.get(id(work))
        if known is None:
            known = self._inner[id(work)] = work, self._looked_at(work)
        return known[1]

    def _looked_at(self, work: Work) -> "_Inner":
        """Whether a computation's collectives are apart from it, or can be disturbed."""
        calls = {scope_of(call, self.stage): call for call in work.collectives()}
        unlike = [call for call in calls.values() if not self.desk.among_equals(call, self.stage)]
        if unlike:
            teams = {self.desk.taking_part(call, self.stage) for call in unlike}
            together = self.together and len(teams) == 1
            return _Inner(team=unlike[0], roles=teams.pop()) if together else _Inner(apart=True)
        if not any(self.desk.has_rivals(scope) for scope in calls):
            return _Inner()
        items = self._items(work)
        loads = (load for item in items for traffic, _ in item.traffic for load in traffic.loads)
        return _Inner(items=items, links=tuple(sorted({link for link, _ in loads})))

    def _items(self, work: Work) -> tuple[Item, ...]:
        items: list[Item] = []
        rest = Duration()
        if work.beside:
            lost = self.costs.lost(work)
            items, rest = [Item(lost, lost.duration, lost)], lost.duration
        for item in reversed(list(work.flat())):
            known = self._items_known.get(id(item))
            if known is None:
                known = self._items_known[id(item)] = item, *self._item(item)
            _, cost, kernels, traffic = known
            rest = cost.duration.then(rest)
            items.append(Item(cost, rest, kernels, traffic))
        return tuple(reversed(items))

    def _item(self, item: Segment | Collective) -> tuple[Cost, Cost | None, Flows]:
        """What an item costs alone, what its kernels cost disturbed, and its traffic."""
        cost = self.costs.of(item)
        if isinstance(item, Collective):
            return cost, None, ((self._traffic(item), item.cause),)
        traffic = tuple((self._traffic(call), call.cause) for call in item.beside)
        return cost, self.costs.disturbed(item), traffic

    def _traffic(self, call: Collective) -> Traffic:
        return self.desk.traffic(call, self.stage)

    def _in_team(
        self, operation: Compute, action: Action | None, after: tuple[int, ...], call: Collective
    ) -> list[Step]:
        """What a role does in a team, and where it waits for the others."""
        number = self.desk.team(call, self.stage, operation.name)
        self.teams[number] = self._look(operation.work).roles, operation.work
        own = self._whole(operation, action, after, number)
        behind = CommunicateStep(
            self._next(), operation.name, (number,), (), True, operation.sync, number
        )
        return [own, behind]

    def _apart(
        self, operation: Compute, action: Action | None, after: tuple[int, ...]
    ) -> list[Step]:
        """Every segment and every collective of an operation as a step of its own."""
        steps: list[Step] = []
        work, items = operation.work, list(operation.work.flat())
        for number, item in enumerate(items):
            last = number == len(items) - 1 and not work.beside
            name = operation.name if last else f"{operation.name}.{number}"
            prefix = f"{operation.name}.{number}"
            if isinstance(item, Collective):
                met = self._transfers(_named((item,), prefix))
                steps.append(CommunicateStep(self._next(), name, met, after))
            else:
                steps += self._segment(item, name, prefix, action, after)
            after = ()
        if work.beside:
            lost = self.costs.lost(work)
            steps.append(ComputeStep(self._next(), operation.name, lost, after, action=action))
        return [*steps[:-1], replace(steps[-1], sync=operation.sync)]

    def _segment(
        self,
        segment: Segment,
        name: str,
        prefix: str,
        action: Action | None,
        after: tuple[int, ...],
    ) -> list[Step]:
        cost = self.costs.disturbed(segment)
        if not segment.beside:
            only = ComputeStep(self._next(), name, cost, after, action=action, flops=segment.flops)
            return [only]
        met = self._transfers(_named(segment.beside, prefix))
        inner = f"{prefix} beside"
        first = ComputeStep(
            self._next(), inner, cost, after, action=action, joins=met, flops=segment.flops
        )
        return [first, CommunicateStep(self._next(), name, met, joined=True)]

    def _transfers(self, calls: Iterable[Call]) -> tuple[int, ...]:
        numbers = [self.desk.transfer(call, self.stage) for call in calls]
        return tuple([number for number in numbers if number is not None])


class _Inner:
    """How a computation with collectives inside is played; in a team of the `roles` that take part
    in the call `team`."""

    def __init__(
        self,
        *,
        apart: bool = False,
        team: Collective | None = None,
        roles: tuple[int, ...] = (),
        items: tuple[Item, ...] = (),
        links: tuple[int, ...] = (),
    ) -> None:
        self.apart, self.team, self.roles = apart, team, roles
        self.items, self.links = items, links


def _named(calls: Iterable[Call], prefix: str) -> Iterable[Call]:
    """Collectives by names that only their peers give them too; messages have keys."""
    return (
        replace(call, name=f"{prefix} {call.name}") if isinstance(call, Collective) else call
        for call in calls
    )
