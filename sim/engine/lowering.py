"""Lowering turns the outline of a stage into the steps of a role.

A computation is one step. Collectives inside it among equal ranks are part of its cost. If other
traffic of the job can load their links, the step keeps its items. While there is such traffic, the
clock plays the items one by one. Collectives among unlike roles (a slow rank in a tensor-parallel
group) are steps of their own. If a team of roles plays the computation, all of it is one step.
In a second step the role then waits for the other roles.
"""

from collections.abc import Iterable, Mapping

from sim.engine.clock_transfers import ClockTransfers
from sim.engine.communicators import Scope, scope_of
from sim.engine.costs import Cost, Costs, Silent
from sim.engine.folded import Carried, CommunicateStep, ComputeStep, Item, Step, Traffic
from sim.engine.outline import Computation, Cut, Entry, Meeting, Named
from sim.program.causes import Cause
from sim.program.durations import Duration
from sim.program.memory import runs
from sim.program.operations import Collective, Segment, Work

Content = tuple[float, tuple[tuple[Collective, float], ...]]  # FLOPs; calls with their counts
Flows = tuple[tuple[Traffic, Cause], ...]  # the traffic of an item, with causes


class Known:
    """A cache that roles share: the content of work, and its costs on equal links."""

    def __init__(self) -> None:
        # Keys are ids of objects. The values keep the objects alive, so no id is used twice.
        self._contents: dict[int, tuple[Work, Content]] = {}
        self._scopes: dict[tuple[int, int], tuple[Work, tuple[Scope, ...]]] = {}
        self._costs: dict[object, Costs] = {}
        self._silent = Silent()

    def costs(self, desk: ClockTransfers, stage: int, slowdown: float, work: Work) -> Costs:
        """The costs of work, shared by all roles for which its collectives take equally long."""
        place = stage, id(work)
        if place not in self._scopes:
            scopes = dict.fromkeys(scope_of(call, stage) for call in work.every_call())
            self._scopes[place] = work, tuple(scopes)
        key = stage, slowdown, tuple([(s, desk.like(s)) for s in self._scopes[place][1]])
        if key not in self._costs:
            links = desk.links_of(stage)
            self._costs[key] = Costs(links, slowdown=slowdown, known=self._silent)
        return self._costs[key]

    def content(self, work: Work) -> Content:
        """The FLOPs of work, its distinct calls, and how often it makes each call."""
        known = self._contents.get(id(work))
        if known is None:
            flops, calls = 0.0, dict[int, tuple[Collective, float]]()
            for item, times in runs(work.items):
                content, inner = self._content_of(item)
                flops += times * content
                for call, count in inner:
                    before = calls.get(id(call), (call, 0.0))[1]
                    calls[id(call)] = call, before + times * count
            known = self._contents[id(work)] = work, (flops, tuple(calls.values()))
        return known[1]

    def _content_of(self, item: Work | Segment | Collective) -> Content:
        if isinstance(item, Work):
            return self.content(item)
        if isinstance(item, Collective):
            return 0.0, ((item, 1.0),)
        return item.flops, tuple((call, 1.0) for call in item.beside)


class Lowering:
    """Writes the steps of a role into `streams`; `desk` numbers the transfers of the role. With
    `together`, roles that meet within a computation play it as a team. `peers` are the lowerings of
    all roles. `teams` gives the roles and the computation of each team of this role, by number."""

    def __init__(
        self,
        desk: ClockTransfers,
        stage: int,
        slowdown: float,
        *,
        together: bool = False,
        peers: "Mapping[int, Lowering] | None" = None,
        known: Known | None = None,
    ) -> None:
        self.desk, self.stage, self.slowdown, self.together = desk, stage, slowdown, together
        self.peers = {} if peers is None else peers
        self.streams: dict[str, list[Step]] = {}
        self.teams: dict[int, tuple[tuple[int, ...], Work]] = {}
        self.known = Known() if known is None else known
        # Keys are ids of objects. The values keep the objects alive, so no id is used twice.
        self._costs: dict[int, tuple[Work, Costs]] = {}
        self._inner: dict[int, tuple[Work, _Inner]] = {}
        self._joined: dict[str, int] = {}  # numbers of teams, by the names of their computations
        self._wholes: dict[int, _Whole] = {}
        self._items_known: dict[int, tuple[Segment | Collective, Cost, Cost | None, Flows]] = {}

    def costs(self, work: Work) -> Costs:
        """The costs of a piece of the role's work; equal roles may share them."""
        known = self._costs.get(id(work))
        if known is None:
            found = self.known.costs(self.desk, self.stage, self.slowdown, work)
            known = self._costs[id(work)] = work, found
        return known[1]

    def cut(self, work: Work) -> Cut:
        """How the role plays a computation: as one step, in a team, or item by item."""
        return self._look(work).cut

    def carried(self, work: Work) -> Carried:
        """The bytes that collectives inside a computation put on links."""
        carried: dict[int, tuple[float, float]] = {}
        for call, times in self.known.content(work)[1]:
            for link, busy, sent in self._traffic(call).carried(times):
                before = carried.get(link, (0.0, 0.0))
                carried[link] = before[0] + busy, before[1] + sent
        return tuple([(link, *sizes) for link, sizes in carried.items()])

    def lower(self, outline: Iterable[Entry]) -> None:
        """Write all steps of an outline that was made for this role's cuts."""
        streams = self.streams
        for entry in outline:
            step = self._met(entry) if isinstance(entry, Meeting) else self._computed(entry)
            if (stream := streams.get(entry.stream)) is None:
                stream = streams[entry.stream] = []
            stream.append(step)

    def _met(self, meeting: Meeting) -> CommunicateStep:
        team = None if meeting.team is None else self._joined[meeting.team]
        transfers = self._transfers(meeting.calls) if team is None else (team,)
        return CommunicateStep(
            meeting.index,
            meeting.name,
            transfers,
            meeting.after,
            meeting.joined,
            meeting.sync,
            team,
        )

    def _computed(self, computation: Computation) -> ComputeStep:
        if not computation.apart:
            return self._whole(computation)
        costs, segment = self.costs(computation.work), computation.segment
        if segment is None:
            cost, flops = costs.lost(computation.work), 0.0
        else:
            cost, flops = costs.disturbed(segment), segment.flops
        joins = self._transfers(computation.joins)
        return ComputeStep(
            computation.index,
            computation.name,
            cost,
            computation.after,
            computation.sync,
            computation.action,
            joins=joins,
            flops=flops,
        )

    def _whole(self, computation: Computation) -> ComputeStep:
        """A computation as one step; a team's next step waits for the other roles."""
        work = computation.work
        _, inner, cost, flops, carried = self._wholes.get(id(work)) or self._known_whole(work)
        team = None
        if computation.team is not None and inner.team is not None:
            self._joined[computation.team] = team = self.desk.team(
                inner.team, self.stage, computation.team
            )
            self.teams[team] = inner.roles, work
        return ComputeStep(
            computation.index,
            computation.name,
            cost,
            computation.after,
            computation.sync,
            computation.action,
            "" if computation.action else work.name,
            (),
            team,
            inner.items,
            inner.links,
            flops,
            carried,
        )

    def _known_whole(self, work: Work) -> "_Whole":
        """Facts that all steps of a computation share. Only the first role of a team counts the
        bytes on links."""
        inner = self._look(work)
        counts = not inner.roles or self.desk.role == inner.roles[0]
        carried = self.carried(work) if counts else ()
        whole = work, inner, self.costs(work).of(work), self.known.content(work)[0], carried
        self._wholes[id(work)] = whole
        return whole

    def _look(self, work: Work) -> "_Inner":
        known = self._inner.get(id(work))
        if known is None:
            known = self._inner[id(work)] = work, self._looked_at(work)
        return known[1]

    def _looked_at(self, work: Work) -> "_Inner":
        """Find out how a computation is played: whole, with items that can be disturbed, in a team,
        or item by item."""
        calls = {scope_of(call, self.stage): call for call in work.collectives()}
        teams = self._teams_of(calls.values())
        if teams:
            roles = next(iter(teams))
            alike = (self.peers[role]._teams_of(calls.values()).keys() for role in roles)
            # If a member also meets roles outside the team, all members play item by item.
            if not self.together or any(kinds != {roles} for kinds in alike):
                return _Inner("apart")
            return _Inner("team", team=teams[roles], roles=roles)
        if not any(self.desk.has_rivals(scope) for scope in calls):
            return _Inner()
        items = self._items(work)
        loads = (load for item in items for traffic, _ in item.traffic for load in traffic.loads)
        return _Inner(items=items, links=tuple(sorted({link for link, _ in loads})))

    def _teams_of(self, calls: Iterable[Collective]) -> dict[tuple[int, ...], Collective]:
        """The sets of unlike roles that this role meets in calls, each with one of the calls."""
        met = {self.desk.taking_part(call, self.stage): call for call in calls}
        return {roles: call for roles, call in met.items() if len(roles) > 1}

    def _items(self, work: Work) -> tuple[Item, ...]:
        items: list[Item] = []
        rest = Duration()
        if work.beside:
            lost = self.costs(work).lost(work)
            items, rest = [Item(lost, lost.duration, lost)], lost.duration
        for item in reversed(list(work.flat())):
            known = self._items_known.get(id(item))
            if known is None:
                known = self._items_known[id(item)] = item, *self._item(item, self.costs(work))
            _, cost, kernels, traffic = known
            rest = cost.duration.then(rest)
            items.append(Item(cost, rest, kernels, traffic))
        return tuple(reversed(items))

    def _item(self, item: Segment | Collective, costs: Costs) -> tuple[Cost, Cost | None, Flows]:
        """Seconds of an item alone, its kernels' seconds when disturbed, and its traffic."""
        cost = costs.of(item)
        if isinstance(item, Collective):
            return cost, None, ((self._traffic(item), item.cause),)
        traffic = tuple((self._traffic(call), call.cause) for call in item.beside)
        return cost, costs.disturbed(item), traffic

    def _traffic(self, call: Collective) -> Traffic:
        return self.desk.traffic(call, self.stage)

    def _transfers(self, calls: Iterable[Named]) -> tuple[int, ...]:
        numbers = [self.desk.transfer(call, self.stage) for call in calls]
        return tuple([number for number in numbers if number is not None])


class _Inner:
    """How a computation with collectives inside is played. If a team plays it, `roles` are the
    team's roles and `team` is a call in which all of them take part."""

    def __init__(
        self,
        cut: Cut = "whole",
        *,
        team: Collective | None = None,
        roles: tuple[int, ...] = (),
        items: tuple[Item, ...] = (),
        links: tuple[int, ...] = (),
    ) -> None:
        self.cut, self.team, self.roles = cut, team, roles
        self.items, self.links = items, links


_Whole = tuple[Work, _Inner, Cost, float, Carried]
