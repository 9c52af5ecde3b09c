"""Lowering of programs whose collectives name their own links.

Every stage is one rank, so there are no equal ranks to fold, and no machine is needed. Only
recordings need this file.
"""

from collections.abc import Sequence

from sim.engine.costs import NO_COST, Cost
from sim.engine.folded import (
    CommunicateStep,
    ComputeStep,
    FoldedProgram,
    LinkClass,
    RoleProgram,
    Step,
    Traffic,
    Transfer,
)
from sim.engine.timeline import Role
from sim.program.operations import Compute, Operation, PlacedCollective, Segment, Work
from sim.program.program import Program


def placed(program: Program, ranks: Sequence[int]) -> FoldedProgram:
    """Turn a program into a folded program for the clock; `ranks` has the rank of each stage. The
    operations of a stage run once each, computations contain no collectives, and communications are
    `PlacedCollective`s."""
    network = _Network()
    roles = tuple(
        RoleProgram(
            Role(index=stage, name=f"rank {rank}", stage=stage, ranks=1, first_rank=rank),
            _streams([step for ops in written.all_ops for step in ops], network),
        )
        for stage, (rank, written) in enumerate(zip(ranks, program.stages, strict=True))
    )
    links = tuple(LinkClass(name, 1, rate) for name, rate in network.rates.items())
    return FoldedProgram(roles=roles, transfers=tuple(network.transfers), links=links)


def _streams(written: Sequence[Operation], network: "_Network") -> dict[str, list[Step]]:
    """The steps of one stage. An operation may wait for a later operation of another stream."""
    index = {operation.name: number for number, operation in enumerate(written)}
    streams: dict[str, list[Step]] = {}
    for number, operation in enumerate(written):
        name, after = operation.name, tuple(index[str(cause)] for cause in operation.after)
        step: Step
        if isinstance(operation, Compute):
            cost, label = _cost(operation.work), operation.work.name
            step = ComputeStep(number, name, cost, after, operation.sync, label=label)
        else:
            calls = (call for call in operation.calls if isinstance(call, PlacedCollective))
            step = CommunicateStep(number, name, tuple(map(network.number, calls)), after)
        streams.setdefault(operation.stream, []).append(step)
    return streams


def _cost(work: Work) -> Cost:
    cost = NO_COST
    for item in work.flat():
        if isinstance(item, Segment):
            cost = cost.then(Cost(item.duration, {item.cause: item.device}))
    return cost


class _Network:
    """The transfers of all stages, and the rate (B/s) of each link that they load."""

    def __init__(self) -> None:
        self.transfers: list[Transfer] = []
        self.rates: dict[str, float] = {}
        self._numbers: dict[str, int] = {}
        self._places: dict[str, int] = {}

    def number(self, call: PlacedCollective) -> int:
        """The number of the transfer in which all calls of this name take part."""
        number = self._numbers.setdefault(call.name, len(self.transfers))
        if number == len(self.transfers):
            self.transfers.append(
                Transfer(
                    name=call.name,
                    cause=call.cause,
                    kind=call.kind,
                    arity=len(call.stages),
                    traffic=self._traffic(call),
                    bytes=call.bytes,
                    ranks=call.ranks,
                )
            )
        return number

    def _traffic(self, call: PlacedCollective) -> Traffic:
        size = max((bytes for _, bytes, _ in call.loads), default=0.0)
        loads = []
        for link, bytes, rate in call.loads:
            self.rates.setdefault(link, rate)
            loads.append((self._places.setdefault(link, len(self._places)), bytes / size))
        return Traffic(latency=call.latency, size=size, loads=tuple(loads))
