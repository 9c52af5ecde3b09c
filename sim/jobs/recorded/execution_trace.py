"""How does a PyTorch execution trace become a recording?

A trace has operators and the operators that they call; a recording has only operators that run a
kernel. An operator runs a kernel if it is known to have a kernel of its own, or calls no other
operator that runs a kernel; inner copies and fills are ignored here. An operator that returns its
argument (`Tensor(a)` in its schema) runs no kernel. A trace has no streams: kernels run one after
the other, and wait for the collectives whose results they read.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import chain
from typing import Any

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.hardware.kernels.dispatch import Phase
from sim.jobs.recorded.axes import group_of
from sim.jobs.recorded.kernels import (
    NAMESPACES,
    call_of,
    event_of,
    has_kernel,
    kernel_of,
    of_own_use,
)
from sim.jobs.recorded.recording import Event, Group, InternTable, Operator, Recording
from sim.jobs.recorded.trace_nodes import ENGINE, REMEDY, Node, Operand, nodes_of, operands

_NOTE = "an execution trace says nothing of memory and streams: its kernels run one after the other"
_FLAGS = ("is_causal", "output_mask")
_UNREAD = {"copy_": "self", "_foreach_copy_": "self"}  # only written, as any "out" is
_MOST = 1 << 24  # the most ranks of a group
_ROOTLESS = ("all", "reduce_scatter")  # their nodes state the rank, others a root
_PHASES: dict[str, Phase] = {  # by the beginnings of nodes' names
    ENGINE: "backward",
    "torch.distributed.ddp.reducer": "backward",
    "Optimizer.": "optimizer",
}


def recording_of(document: Mapping[str, Any], where: str) -> Recording:
    """The recording of a trace. It holds the step between the ends of the trace's first two
    optimizer steps, or the whole trace if the trace has fewer optimizer steps. Raises
    `InputError`."""
    nodes = nodes_of(document, where)
    groups = _Groups(nodes, where)
    reader = _Reader(nodes, groups, where)
    events = _one_step(reader.events())
    if not any(event.kind == "kernel" for event in events):
        raise InputError(where, "holds no operator that computes", REMEDY)
    return Recording(
        script=where.rpartition("/")[2],
        torch=str(document["schema"]),
        world=groups.world,
        rank=groups.rank,
        operators=tuple(reader.operators.entries),
        groups=tuple(groups.used.entries),
        events=tuple(events),
        notes=(_NOTE, *reader.notes()),
    )


def _one_step(events: Sequence[Event]) -> list[Event]:
    """The events of one step. Events between a backward pass and an optimizer step (clipping)
    become the optimizer's."""
    found = list(events)
    for place in range(len(found) - 1, 0, -1):
        if found[place].phase == "optimizer" and found[place - 1].phase == "forward":
            first = place - 1
            while first >= 0 and found[first].phase == "forward":
                first -= 1
            if first >= 0 and found[first].phase == "backward":
                for n in range(first + 1, place):
                    found[n] = replace(found[n], phase="optimizer")
    stepping = [event.phase == "optimizer" for event in found]
    ends = [
        n + 1
        for n, last in enumerate(stepping)
        if last and (n + 1 == len(stepping) or not stepping[n + 1])
    ]
    return found[ends[0] : ends[1]] if len(ends) > 1 else found


@dataclass(frozen=True, slots=True)
class _Call:
    """A collective as the node that NCCL records (`record_param_comms`) describes it. `group` is
    the name or address of its group. The other fields are the rank's `place` in the group (-1:
    unknown), the group's `size` (0: unknown), and its `members`, if they are known."""

    group: str
    place: int
    size: int
    members: tuple[int, ...]


def _call_of(node: Node) -> _Call | None:
    """Read NCCL's node; None for other nodes and for waits. Its arguments are, after some numbers:
    group, rank or root, collective, two lists of sizes by rank. From schema 1.0.2 on, the group's
    first rank, stride and size follow."""
    words = [n for n, value in enumerate(node.given) if isinstance(value, str)]
    if node.name != "record_param_comms" or not words or words[0] < 2:
        return None
    group, place, kind, *rest = node.given[words[0] - 2 :]
    name = str(group[0] if isinstance(group, list) and group else group)
    numbers = [value for value in rest if type(value) is int]
    if kind == "wait" or not name or type(place) is not int:
        return None
    place = place if kind.strip("_").startswith(_ROOTLESS) else -1
    if len(numbers) < 3:
        sizes = (len(value) for value in rest if isinstance(value, list))
        return _Call(name, place, max(sizes, default=0), ())
    first, stride, size = numbers[:3]
    if not 0 < size <= _MOST:
        return None
    members = range(first, first + stride * size, stride) if first >= 0 and stride > 0 else ()
    return _Call(name, place, size, tuple(members))


class _Groups:
    """The process groups that a trace names; `used` holds the groups of its collectives."""

    def __init__(self, nodes: Sequence[Node], where: str) -> None:
        self.where, self.used = where, InternTable[Group]()
        self.sizes: dict[str, int] = {}
        self.members: dict[str, tuple[int, ...]] = {}
        for node in nodes:
            if node.name == "## process_group:init ##" and node.given:
                self._told(node.given[0])
        seen = None if self.sizes else self._seen(nodes)
        last = (ranks[-1] + 1 for ranks in self.members.values() if ranks)
        self.world = max((*self.sizes.values(), *last), default=1)
        together = (set(ranks or range(self.world)) for ranks in self.members.values())
        least = min(set.intersection(*together, set(range(self.world))), default=0)
        self.rank = least if seen is None else seen

    def _seen(self, nodes: Sequence[Node]) -> int | None:
        """Read the groups from NCCL's nodes. Return the rank of the traced process, from the first
        collective of a largest group that states its place; None if none does. A group of unknown
        size is assumed to be as large as the largest."""
        calls = [call for call in map(_call_of, nodes) if call]
        largest = max((call.size for call in calls), default=0)
        if not largest:
            return None
        for call in calls:
            self.sizes[call.group] = max(call.size, self.sizes.get(call.group, 0))
            self.members[call.group] = call.members or self.members.get(call.group, ())
        self.sizes = {name: size or largest for name, size in self.sizes.items()}
        members = (
            (self.members[call.group] or range(largest), call.place)
            for call in calls
            if self.sizes[call.group] == largest and 0 <= call.place < largest
        )
        return next((ranks[place] for ranks, place in members), None)

    def _told(self, text: Any) -> None:
        try:
            for group in json.loads(str(text)):
                name, ranks = str(group["pg_name"]), tuple(sorted(map(int, group["ranks"])))
                self.sizes[name] = max(int(group["group_size"]), 1)
                self.members[name] = ranks
        except (ValueError, KeyError, TypeError):
            raise InputError(self.where, "has process groups that cannot be read", REMEDY) from None

    def number(self, node: Node, inner: Sequence[Node]) -> int:
        """The number of a collective's group: the group that an inner call or NCCL's inner node
        names, else the group that an argument names, else the only group. Raises `InputError` if
        the group is unknown."""
        names = [str(call.attributes["pg_name"]) for call in inner if "pg_name" in call.attributes]
        names += [call.group for call in map(_call_of, inner) if call]
        names += [value for value in node.given if isinstance(value, str) and value in self.sizes]
        names += list(self.sizes) if len(self.sizes) == 1 else []
        if not names or names[0] not in self.sizes:
            fault = f"{node.name} does not say in which of {len(self.sizes)} process groups it runs"
            raise InputError(self.where, fault, "trace a job that has one group, or that uses NCCL")
        ranks = self.members[names[0]] or tuple(range(self.sizes[names[0]]))
        return self.used.number(group_of(ranks, self.where))


@dataclass(slots=True)
class _Facts:
    """A call's phase, whether it is inside a kernel, and the calls that it makes."""

    phase: Phase
    inside: bool = False
    works: bool = False  # it runs a kernel other than a copy or a fill for internal use
    calls: list[Node] = field(default_factory=list)


class _Reader:
    """Reads the events and operators of a trace."""

    def __init__(self, nodes: Sequence[Node], groups: _Groups, where: str) -> None:
        self.nodes, self.groups, self.where = nodes, groups, where
        self.operators = InternTable[Operator]()
        self.results: dict[int, int] = {}  # by storage: the collective that writes it
        self.unknown: Counter[str] = Counter()
        self.facts = {node.number: _Facts("forward") for node in nodes}
        for node in nodes:
            if node.parent in self.facts:
                self.facts[node.parent].calls.append(node)
        tensors = (operand for node in nodes for operand in operands((node.given, node.made)))
        self.on_gpu = any(operand.on_gpu for operand in tensors)
        self.kernels = self._kernels()

    def _kernels(self) -> set[int]:
        """The numbers of calls that count as kernels; `_events` ignores calls inside a kernel."""
        found = set()
        for node in reversed(self.nodes):
            facts = self.facts[node.number]
            inner = any(self.facts[call.number].works for call in facts.calls)
            name = node.operator.partition(".")[2]
            kernel = _is_triton(node) or (
                bool(name)
                and not node.is_view
                and (has_kernel(name) or not inner)
                and any(
                    operand.on_gpu or not self.on_gpu
                    for operand in operands((node.given, node.made))
                )
            )
            if kernel:
                found.add(node.number)
            facts.works = inner or (kernel and not of_own_use(name))
        return found

    def events(self) -> list[Event]:
        """All events, in the order of the host."""
        return list(chain.from_iterable(map(self._events, self.nodes)))

    def _events(self, node: Node) -> Iterator[Event]:
        facts, above = self.facts[node.number], self.facts.get(node.parent)
        if above is not None:
            facts.phase, facts.inside = above.phase, above.inside
        facts.phase = next((v for k, v in _PHASES.items() if node.name.startswith(k)), facts.phase)
        if facts.inside:
            return
        space, _, name = node.operator.partition(".")
        numbered = node.attributes.get("seq_id", -1) != -1
        # Autograd numbers the calls that it will differentiate: in a backward pass, recomputed
        # calls.
        again = facts.phase == "backward" and numbered
        if space in NAMESPACES:
            facts.inside = True
            yield from self._call(node, name, facts.phase)
        elif name == "_local_scalar_dense":
            yield Event(kind="sync", phase=facts.phase)
        elif node.number in self.kernels:
            facts.inside = True
            yield self._kernel(node, facts.phase, again)

    def _kernel(self, node: Node, phase: Phase, again: bool) -> Event:
        operator = _operator(node)
        try:
            kernel_of(operator)
        except (IndexError, ValueError, ZeroDivisionError):
            fault = f"has tensors that {operator.name} does not take"
            raise InputError(f"{self.where}, node {node.number}", fault, REMEDY) from None
        if not operator.name.startswith(("aten.", "inductor.")):
            self.unknown[operator.name] += 1
        read = {operand.storage for operand in operands(node.given)} & self.results.keys()
        return Event(
            kind="kernel",
            phase=phase,
            again=again,
            operator=self.operators.number(operator),
            reads=tuple(sorted({self.results.pop(storage) for storage in read})),
        )

    def _call(self, node: Node, name: str, phase: Phase) -> Iterator[Event]:
        """A collective, a message, or a wait for either."""
        kind, mark = call_of(name), node.number
        tensors = list(operands((node.given, node.made)))
        if name == "wait_tensor":
            marks = {self.results.pop(operand.storage, 0) for operand in tensors} - {0}
            yield from (Event(kind="done", phase=phase, mark=awaited) for awaited in sorted(marks))
        if kind is None or not tensors:
            return
        blocking = node.argument("async_op") is False
        if not blocking and kind != "send":
            results = list(operands(node.made)) or tensors
            self.results |= {operand.storage: mark for operand in results}
        sides = (*node.given[:2], node.made)
        yield Event(
            kind=event_of(kind),
            phase=phase,
            name=kind,
            group=self.groups.number(node, self._within(node)),
            bytes=max(sum(operand.tensor.bytes for operand in operands(side)) for side in sides),
            mark=mark,
            blocking=blocking,
        )

    def _within(self, node: Node) -> list[Node]:
        calls = self.facts[node.number].calls
        return [*calls, *(inner for call in calls for inner in self.facts[call.number].calls)]

    def notes(self) -> Iterator[str]:
        """Yield a note on each operator that is not torch's."""
        for name, often in self.unknown.items():
            yield f"{name} ({often} times) is no operator of torch; its time follows from its bytes"


def _is_triton(node: Node) -> bool:
    return node.attributes.get("kernel_backend") == "triton"


def _operator(node: Node) -> Operator:
    """The operator of a call with its tensors and the arguments that its kernel depends on."""
    given, made = list(operands(node.given)), list(operands(node.made))
    if _is_triton(node):  # its arguments include the tensors that it writes
        name = re.sub(r"[^\w]", "_", node.name)
        return Operator(name=f"inductor.{name}", inputs=tuple(operand.tensor for operand in given))
    name = node.operator.partition(".")[2]
    unread = list(operands(node.argument(_UNREAD.get(name, "out"))))
    flags = {key: value for key in _FLAGS if (value := node.argument(key)) is not None}
    if lists := sum(isinstance(value, tuple) for value in node.given):
        flags["lists"] = lists
    return Operator(
        name=node.operator,
        inputs=_tensors([operand for operand in given if operand not in unread]),
        outputs=_tensors(made),
        written=sum(operand.tensor.bytes for operand in made or node.written),
        flags=flags,
    )


def _tensors(found: Sequence[Operand]) -> tuple[Any, ...]:
    return tuple(operand.tensor for operand in found)
