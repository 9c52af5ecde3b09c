"""A folded program on another machine, which differs from the first only in rates and latencies.

Traffic is reused if its call costs the same on both machines and its links have equal capacities.
Maps of passes are reused, too, because their keys hold the seconds of all calls of a pass.
"""

from collections.abc import Collection
from copy import copy

from sim.engine.costs import Costs
from sim.engine.folded import LinkClass
from sim.engine.machine import Machine
from sim.engine.replay.play import FoldedMachine
from sim.engine.replay.step_tail import StepTail, TailStep
from sim.engine.transfers import NO_TRAFFIC, RankTransfers, TransferDesk
from sim.program.operations import Communicate
from sim.program.program import Stage


def _moved_desk(before: TransferDesk, machine: Machine) -> TransferDesk:
    """The transfers of another machine with the same classes of ranks, groups and links."""
    desk = copy(before)
    desk.machine, desk._costs = machine, {}
    capacities = map(machine.topology.capacity, before.named_links())
    desk.links = [
        link if link.capacity == capacity else LinkClass(link.name, link.count, capacity)
        for link, capacity in zip(before.links, capacities, strict=True)
    ]
    same = {key for key, cost in before._costs.items() if desk._cost(*key) == cost}
    changed = {n for n, link in enumerate(desk.links) if link is not before.links[n]}
    desk._traffic = {
        (g, volume): traffic
        for (g, volume), traffic in before._traffic.items()
        if (volume, desk.groups.shape[g]) in same
        and not any(link in changed for link, _ in traffic.loads)
    }
    desk.chosen = {key: before.chosen[key] for key in desk._traffic}
    return desk


def _moved_rank(before: RankTransfers, desk: TransferDesk, kept: Collection[int]) -> RankTransfers:
    """The transfers of the same rank on the other machine; `kept` has the ids of reused traffic."""
    rank = RankTransfers(desk, before.index)
    rank._groups = before._groups
    known = before._traffic.items()
    rank._traffic = {key: pair for key, pair in known if id(pair[1]) in kept}
    return rank


class MovedMachine(FoldedMachine):
    """The folded machine with other rates and latencies."""

    def __init__(self, before: FoldedMachine, machine: Machine) -> None:
        folding, desk = copy(before.folding), _moved_desk(before.folding.desk, machine)
        folding.machine, folding.desk = machine, desk
        kept = {id(NO_TRAFFIC), *map(id, desk._traffic.values())}
        ranks = [_moved_rank(rank, desk, kept) for rank in before.desks]
        super().__init__(folding, before._silent, ranks)
        self._maps, self._stages = dict(before._maps), dict(before._stages)
        self._sends, self._tails = before._sends, before._closing

    def _closing_of(self, stage: int, stage_program: Stage) -> StepTail:
        last = stage_program.closing, stage_program.beside
        key = stage, *map(id, last)
        if key not in self._tails:
            return super()._closing_of(stage, stage_program)
        desk, costs = self.desks[stage], self.costs[stage]
        steps = self._tails[key][1].steps
        tail = StepTail(tuple([_moved(step, stage, desk, costs) for step in steps]))
        self._closing[key] = last, tail
        return tail


def _moved(step: TailStep, stage: int, desk: RankTransfers, costs: Costs) -> TailStep:
    """An operation after a stage's passes, on the other machine."""
    operation = step.operation
    if isinstance(operation, Communicate):
        traffic = tuple([(call, desk.traffic(call, stage)) for call, _ in step.traffic])
        numbers = tuple([load.alone for _, load in traffic])
        return TailStep(operation, step.members, numbers, traffic=traffic)
    cost = costs.of(operation.work)
    return TailStep(operation, (), tuple(cost.duration), cost.parts)
