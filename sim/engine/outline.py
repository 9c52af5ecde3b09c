"""The steps of a stage in outline, written once for all roles of the stage.

Roles of a stage differ in the costs of their computations and in their transfers. The order of
steps and their dependencies are equal.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple
from weakref import WeakKeyDictionary

from sim.engine.communicators import Scope, scope_of
from sim.program.operations import Call, Collective, Compute, Operation, Segment, Work
from sim.program.program import Program
from sim.program.schedule import Action
from sim.program.unrolled import operations

Cut = Literal["whole", "team", "apart"]  # one step, one step of several roles, a step for each item


class Named(NamedTuple):
    """A call of a stage, with a name that only this call has, on this stage and on its peers."""

    call: Call
    scope: Scope
    name: str


# Entries are not frozen, as frozen objects are slow to make and a large job has thousands.
@dataclass(slots=True, eq=False)
class Meeting:
    """A step that takes part in `calls`. If it is `joined`, the step before has joined the calls,
    and this step only waits for them. With `team`, it waits for the other roles of the team that
    computes the step before."""

    index: int
    name: str
    stream: str
    calls: tuple[Named, ...]
    after: tuple[int, ...] = ()
    joined: bool = False
    sync: bool = False
    team: str | None = None


@dataclass(slots=True, eq=False)
class Computation:
    """A step that computes all of `work`; with `team`, together with other roles. If it is `apart`,
    it computes one `segment` of the work and joins the calls in `joins`. Without a segment it
    stands for the time that the work loses to collectives beside it."""

    index: int
    name: str
    stream: str
    work: Work
    apart: bool = False
    after: tuple[int, ...] = ()
    sync: bool = False
    action: Action | None = None
    team: str | None = None
    segment: Segment | None = None
    joins: tuple[Named, ...] = ()


Entry = Meeting | Computation
Written = tuple[Operation, Action | None]


class Outlines:
    """The outlines of a program's stages, a separate outline for each way to play computations.
    `disturbed` says whether other traffic has disturbed the program's teams in an earlier play."""

    def __init__(self, program: Program) -> None:
        stages = range(len(program.stages))
        self._written = [list(operations(program, stage)) for stage in stages]
        self._known: dict[tuple[int, tuple[Cut, ...]], tuple[Entry, ...]] = {}
        self.disturbed = False

    @cached_property
    def _works(self) -> list[dict[int, Work]]:
        return [
            {id(op.work): op.work for op, _ in operations if isinstance(op, Compute)}
            for operations in self._written
        ]

    def of(self, stage: int, cut: Callable[[Work], Cut]) -> tuple[Entry, ...]:
        """The outline for a role of a stage; `cut` tells how the role plays each piece of work."""
        cuts = {key: cut(work) for key, work in self._works[stage].items()}
        key = stage, tuple(cuts.values())
        if key not in self._known:
            self._known[key] = tuple(_Outline(stage, cuts).entries(self._written[stage]))
        return self._known[key]


_outlines: WeakKeyDictionary[Program, Outlines] = WeakKeyDictionary()


def outlines(program: Program) -> Outlines:
    """The outlines of a program, made once for all machines on which it is played."""
    known = _outlines.get(program)
    if known is None:
        known = _outlines[program] = Outlines(program)
    return known


class _Outline:
    """Writes the outline of one stage; the keys of `cuts` are ids of its work."""

    def __init__(self, stage: int, cuts: Mapping[int, Cut]) -> None:
        self.stage, self.cuts = stage, cuts
        self._count = 0
        self._index: dict[str, int] = {}

    def entries(self, written: Iterable[Written]) -> Iterator[Entry]:
        for operation, action in written:
            after = tuple([self._index[str(name)] for name in operation.after])
            yield from self._of(operation, action, after)
            self._index[operation.name] = self._count - 1

    def _next(self) -> int:
        self._count += 1
        return self._count - 1

    def _of(
        self, operation: Operation, action: Action | None, after: tuple[int, ...]
    ) -> Iterator[Entry]:
        name, stream, sync = operation.name, operation.stream, operation.sync
        if not isinstance(operation, Compute):
            calls = self._named(operation.calls, name)
            yield Meeting(self._next(), name, stream, calls, after, sync=sync)
            return
        work = operation.work
        if (cut := self.cuts[id(work)]) == "apart":
            yield from self._apart(operation, action, after)
        elif cut == "whole":
            yield Computation(
                self._next(), name, stream, work, after=after, sync=sync, action=action
            )
        else:
            label = f"{name}.0"
            yield Computation(
                self._next(), label, stream, work, after=after, action=action, team=name
            )
            yield Meeting(self._next(), name, stream, (), joined=True, sync=sync, team=name)

    def _apart(
        self, operation: Compute, action: Action | None, after: tuple[int, ...]
    ) -> Iterator[Entry]:
        """Yield each segment and each collective of an operation as a step of its own."""
        stream, work = operation.stream, operation.work
        entries: list[Entry] = []
        for number, item in enumerate(work.flat()):
            prefix = f"{operation.name}.{number}"
            first = after if number == 0 else ()
            if isinstance(item, Collective):
                calls = self._named((item,), prefix)
                entries.append(Meeting(self._next(), prefix, stream, calls, first))
                continue
            joins = self._named(item.beside, prefix)
            computation = Computation(
                self._next(), prefix, stream, work, True, first, action=action, segment=item
            )
            entries.append(computation)
            if joins:
                computation.name, computation.joins = f"{prefix} beside", joins
                entries.append(Meeting(self._next(), prefix, stream, joins, joined=True))
        if work.beside:
            computation = Computation(
                self._next(), operation.name, stream, work, True, action=action
            )
            computation.after = () if entries else after
            entries.append(computation)
        entries[-1].name, entries[-1].sync = operation.name, operation.sync
        yield from entries

    def _named(self, calls: Iterable[Call], prefix: str) -> tuple[Named, ...]:
        """Name calls. A collective's name begins with the name of its operation, which its peers
        run, too. A message's name is its key."""
        return tuple(
            Named(
                call,
                scope_of(call, self.stage),
                f"{prefix} {call.name}" if isinstance(call, Collective) else call.key,
            )
            for call in calls
        )
