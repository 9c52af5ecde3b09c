"""How is a played step written as Chakra traces?

The traces have every rank's kernels and collectives, but no network. Kernels take as long as they
took on the simulated machine; slow ranks and the slowdown beside collectives are included. If the
device waited for its host's launches, an operation of the CPU precedes the kernels. All times are
whole microseconds, and rounding errors do not add up. Operations of a stream follow one another.
Copies to and from the host are stores and loads.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import count, product
from pathlib import Path

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.grouped import grouped
from sim.engine.costs import Costs
from sim.engine.fold import Folding
from sim.engine.machine import Machine
from sim.engine.timeline import Role, Span, Timeline
from sim.jobs.traces import chakra_format as chakra
from sim.jobs.traces.chakra_format import COLLECTIVES, Node
from sim.parallel.mesh import Mesh
from sim.program.causes import HOST
from sim.program.operations import (
    Call,
    Collective,
    Communicate,
    Compute,
    Copy,
    Operation,
    Receive,
    Segment,
    Send,
    Work,
)
from sim.program.program import Program
from sim.program.unrolled import operations


def seconds_of_roles(
    program: Program, machine: Machine, timeline: Timeline, stages: Sequence[Sequence[Operation]]
) -> list["Seconds"]:
    """Return the seconds of each role (ranks that do the same) of a timeline. `stages` are the
    operations of each stage."""
    folding = Folding(program, machine)
    places = {role.first_rank: place for role, place in folding.roles}
    spans: list[list[Span]] = [[] for _ in timeline.roles]
    for span in timeline.spans:
        spans[span.role].append(span)
    found = []
    for role, role_spans in zip(timeline.roles, spans, strict=True):
        links = folding.desk.at(places[role.first_rank]).links_of(role.stage)
        costs = Costs(links, slowdown=role.slowdown)
        found.append(Seconds(role, costs, stages[role.stage], role_spans))
    return found


class Seconds:
    """The seconds of each operation of a `role`."""

    def __init__(
        self, role: Role, costs: Costs, written: Sequence[Operation], spans: Sequence[Span]
    ) -> None:
        self.role, self.costs = role, costs
        self._host: dict[str, float] = {}
        self._segments: dict[int, tuple[Work, list[float]]] = {}  # by the work's id
        left = grouped((span.stream, span) for span in reversed(spans))
        for operation in written:
            row, pieces = left.get(operation.stream, []), f"{operation.name}."
            self._host[operation.name] = 0.0
            while row and (row[-1].name == operation.name or row[-1].name.startswith(pieces)):
                self._host[operation.name] += _for_host(row.pop())

    def for_host(self, operation: Compute) -> float:
        """Return the seconds for which the device waits for the host's launches."""
        return self._host[operation.name]

    def of_segments(self, work: Work) -> list[float]:
        """Return the seconds of each segment in order. The work may lose time to other streams;
        this time is spread over all segments."""
        known = self._segments.get(id(work))
        if known is None:
            known = self._segments[id(work)] = work, self._of_segments(work)
        return known[1]

    def _of_segments(self, work: Work) -> list[float]:
        segments = (item for item in work.flat() if isinstance(item, Segment))
        alone = [self.costs.disturbed(segment).duration.device for segment in segments]
        slower = 1.0 + self.costs.lost(work).duration.device / (sum(alone) or 1.0)
        return [slower * seconds for seconds in alone]


def _for_host(span: Span) -> float:
    """Return the host's part of a computation, plus the span's seconds beyond its parts."""
    if "parts" not in span.args:
        return 0.0
    parts = dict(span.args["parts"])
    return max(span.duration - sum(parts.values()), 0.0) + float(parts.get(HOST, 0.0))


_MOST = 4096  # ranks, as each rank has a file

Group = tuple[int, ...]
Numbers = tuple[int, ...]


def write(program: Program, machine: Machine, timeline: Timeline, folder: Path) -> list[Path]:
    """Write `rank.0.et`, `rank.1.et` ... and `groups.json` (the members of process groups) into a
    folder, for all ranks of a program. `timeline` is the program's step on `machine`. Raises
    `InputError` if there are more than 4,096 ranks."""
    mesh, written = Mesh(axes=program.mesh), []
    if mesh.size > _MOST:
        fault = f"{mesh.size:,} ranks would be as many files; at most {_MOST:,} are written"
        raise InputError("--chakra", fault, "play fewer GPUs")
    names = _Names()
    folder.mkdir(parents=True, exist_ok=True)
    stages = [[operation for operation, _ in operations(program, n)]
              for n in range(len(program.stages))]  # fmt: skip
    played = seconds_of_roles(program, machine, timeline, stages)
    for rank in range(mesh.size):
        stage = mesh.coordinates(rank).get("pp", 0)
        alike = stage, machine.slowdown.get(rank, 1.0)
        candidates = [each for each in played if (each.role.stage, each.role.slowdown) == alike]
        nearest = [each for each in candidates if each.role.first_rank <= rank] or candidates
        path = folder / f"rank.{rank}.et"
        chakra.write(path, _Rank(mesh, rank, names, nearest[-1]).nodes(stages[stage]))
        written.append(path)
    chakra.write_groups(folder / "groups.json", {n: members for members, n in names.groups.items()})
    return [*written, folder / "groups.json"]


@dataclass(frozen=True, slots=True)
class _Names:
    """Numbers on which all ranks agree: of process groups, and of messages by their keys."""

    groups: dict[Group, int] = field(default_factory=dict)
    tags: dict[str, int] = field(default_factory=dict)

    def group(self, members: Group) -> int:
        return self.groups.setdefault(members, len(self.groups))

    def tag(self, key: str) -> int:
        return self.tags.setdefault(key, len(self.tags))


class _Rank:
    """The graph of one rank."""

    def __init__(self, mesh: Mesh, rank: int, names: _Names, seconds: Seconds) -> None:
        self.mesh, self.rank, self.names, self.seconds = mesh, rank, names, seconds
        self._numbers = count()
        self._last: dict[str, Numbers] = {}  # last nodes of each stream
        self._ends: dict[str, Numbers] = {}  # last nodes of each operation
        self._owed = 0.0  # microseconds that rounding has left over

    def nodes(self, written: list[Operation]) -> Iterator[Node]:
        """Yield the nodes of all operations of the rank's stage."""
        for operation in written:
            causes = [self._last.get(operation.stream, ())]
            causes += [self._ends[str(cause)] for cause in operation.after]
            after = tuple(dict.fromkeys(number for cause in causes for number in cause))
            if isinstance(operation, Communicate):
                calls = [self._call(call, operation.name, after) for call in operation.calls]
                issued = [node for node in calls if node is not None]
                yield from issued
                ends = tuple(node.number for node in issued) or after
            else:
                ends = after
                for items in self._computed(operation, ends):
                    yield from items
                    ends = tuple(node.number for node in items)
            self._last[operation.stream] = self._ends[operation.name] = ends

    def _computed(self, operation: Compute, after: Numbers) -> Iterator[list[Node]]:
        """Yield the nodes of a computation as lists. The lists run one after the other; the nodes
        of a list begin together."""
        name, segments = operation.name, iter(self.seconds.of_segments(operation.work))
        if waited := self._whole(self.seconds.for_host(operation)):
            host = self._node(f"{name} host", "compute", after, {"is_cpu_op": True}, waited)
            yield [host]
            after = (host.number,)
        for item in operation.work.flat():
            together: list[Node | None] = []
            if isinstance(item, Segment):
                lasts = self._whole(next(segments))
                label, flops = f"{name} {item.name}".strip(), {"num_ops": round(item.flops)}
                if lasts or item.flops:
                    together.append(self._node(label, "compute", after, flops, lasts))
            calls = (item,) if isinstance(item, Collective) else item.beside
            together += [self._call(call, f"{name} {call.name}".strip(), after) for call in calls]
            if nodes := [node for node in together if node is not None]:
                yield nodes
                after = tuple(node.number for node in nodes)

    def _whole(self, seconds: float) -> int:
        exact = 1e6 * seconds + self._owed
        whole = max(round(exact), 0)
        self._owed = exact - whole
        return whole

    def _call(self, call: Call, name: str, after: Numbers) -> Node | None:
        if isinstance(call, Send | Receive):
            return self._message(call, name, after)
        if isinstance(call, Copy):
            kind: chakra.Kind = "store" if any("up" in link for link in call.path) else "load"
            return self._node(name, kind, after, {"tensor_size": round(call.bytes)})
        members = self._members(call)
        if len(members) == 1:
            return None
        share = len(members) if call.kind == "all_gather" else 1
        copies = call.routed.choices if call.routed else 1
        attributes: dict[str, int | str | float] = {
            "comm_type": COLLECTIVES[call.kind],
            "comm_size": round(call.bytes * copies / share),
            "pg_name": str(self.names.group(members)),
        }
        if call.beside and not call.quiet:
            attributes[chakra.BESIDE] = call.beside
        return self._node(name, "collective", after, attributes)

    def _message(self, call: Send | Receive, name: str, after: Numbers) -> Node:
        sends = isinstance(call, Send)
        stage = call.to if isinstance(call, Send) else call.source
        here = self.mesh.coordinate(self.rank, "pp")
        peer = self.rank + (stage - here) * self.mesh.stride("pp")
        attributes = {
            "comm_src": self.rank if sends else peer,
            "comm_dst": peer if sends else self.rank,
            "comm_size": round(call.bytes),
            "comm_tag": self.names.tag(call.key),
        }
        return self._node(name, "send" if sends else "receive", after, attributes)

    def _node(
        self,
        name: str,
        kind: chakra.Kind,
        after: Numbers,
        attributes: Mapping[str, int | str | float],
        microseconds: int = 0,
    ) -> Node:
        return Node(
            number=next(self._numbers),
            name=name,
            kind=kind,
            microseconds=microseconds,
            after=after,
            attributes={"is_cpu_op": False, **attributes},
        )

    def _members(self, call: Collective) -> Group:
        """Return, in order, the ranks that differ from this rank only along the call's axes."""
        along = [(self.mesh.stride(axis), self.mesh.axes[axis]) for axis in call.axes]
        first = self.rank
        for axis, (stride, _) in zip(call.axes, along, strict=True):
            first -= stride * self.mesh.coordinate(self.rank, axis)
        places = [
            call.stages if axis == "pp" and call.stages is not None else range(size)
            for axis, (_, size) in zip(call.axes, along, strict=True)
        ]
        steps = [stride for stride, _ in along]
        return tuple(
            sorted(
                first + sum(step * place for step, place in zip(steps, coordinates, strict=True))
                for coordinates in product(*places)
            )
        )
