"""What the computations of a step took where it was played, as traces of it say."""

from collections.abc import Sequence

from sim.engine.costs import Costs
from sim.engine.fold import Folding
from sim.engine.machine import Machine
from sim.engine.timeline import Role, Span, Timeline
from sim.program.causes import HOST
from sim.program.operations import Compute, Operation, Segment, Work
from sim.program.program import Program


def seconds_of_roles(
    program: Program,
    machine: Machine,
    timeline: Timeline,
    stages: Sequence[Sequence[Operation]],
) -> list["Seconds"]:
    """Those of each role of a timeline, of which `stages` are the operations, written out."""
    folding = Folding(program, machine)
    places = {role.first_rank: place for role, place in folding.roles}
    spans: list[list[Span]] = [[] for _ in timeline.roles]
    for span in timeline.spans:
        spans[span.role].append(span)
    found = []
    for role, own in zip(timeline.roles, spans, strict=True):
        links = folding.desk.at(places[role.first_rank]).links_of(role.stage)
        costs = Costs(links, slowdown=role.slowdown)
        found.append(Seconds(role, costs, stages[role.stage], own))
    return found


class Seconds:
    """What the operations of a `role` took."""

    def __init__(
        self, role: Role, costs: Costs, written: Sequence[Operation], spans: Sequence[Span]
    ) -> None:
        self.role, self.costs = role, costs
        self._host: dict[str, float] = {}
        self._segments: dict[int, tuple[Work, list[float]]] = {}  # by identity of the work
        left: dict[str, list[Span]] = {}
        for span in reversed(spans):
            left.setdefault(span.stream, []).append(span)
        for own in written:
            row, pieces = left.get(own.stream, []), f"{own.name}."
            self._host[own.name] = 0.0
            while row and (row[-1].name == own.name or row[-1].name.startswith(pieces)):
                self._host[own.name] += _for_host(row.pop())

    def for_host(self, operation: Compute) -> float:
        """Seconds for which the device waits for the host's launches."""
        return self._host[operation.name]

    def of_segments(self, work: Work) -> list[float]:
        """Of each segment in order; what kernels lose to other streams is spread over them."""
        known = self._segments.get(id(work))
        if known is None:
            known = self._segments[id(work)] = work, self._of_segments(work)
        return known[1]

    def _of_segments(self, work: Work) -> list[float]:
        segments = (item for item in work.flat() if isinstance(item, Segment))
        own = [self.costs.disturbed(segment).duration.device for segment in segments]
        slower = 1.0 + self.costs.lost(work).duration.device / (sum(own) or 1.0)
        return [slower * seconds for seconds in own]


def _for_host(span: Span) -> float:
    """What a computation lasts beyond its parts, and the part that is the host's."""
    if "parts" not in span.args:
        return 0.0
    parts = dict(span.args["parts"])
    return max(span.duration - sum(parts.values()), 0.0) + float(parts.get(HOST, 0.0))
