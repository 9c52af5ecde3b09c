"""The record of a run: when every step of every stream ran, in arrays.

Accounts are read off the arrays; the timeline's spans are written down only if somebody looks.

`rates` says how busy devices and links are: FLOP/s of each role, bytes a second on links. An
operation spreads its FLOPs, and the bytes of the collectives inside it, evenly over its time; a
transfer spreads its bytes from its beginning to its end. So every rate adds up to what was done.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property

import numpy as np

from sim.config.dataclass import dataclass
from sim.engine.costs import Parts
from sim.engine.folded import CommunicateStep, ComputeStep, FoldedProgram, LinkClass, Step, Transfer
from sim.engine.timeline import Columns, Deferred, Played, Rate, Role, Span, Timeline
from sim.engine.tracks import COMMUNICATION, Floats, Indices, Runs, Track, of_columns
from sim.hardware.cluster.storage import UNITS
from sim.program.causes import COMPUTE, WAITING, Cause
from sim.program.operations import COMPUTE_STREAM

_DIGITS = 9  # of seconds; operations that touch do not overlap

Amounts = list[tuple[float, float, float]]  # begin, end (s), how much in between

MOST_LINKS = 8  # of a kind; those that carry most


def rates(tracks: Iterable[Track], program: FoldedProgram) -> Iterator[Rate]:
    """FLOP/s of the products of each role, then the load of the links that carry most, B/s."""
    work, traffic = amounts(tracks, program)
    for role, spans in work.items():
        yield _rate(role, "products", "FLOP/s", spans)
    links = program.links
    shown: Counter[str] = Counter()
    for link in sorted(traffic, key=lambda link: (-sum(size for *_, size in traffic[link]), link)):
        kind = links[link].name.split()[0]
        shown[kind] += 1
        if shown[kind] <= MOST_LINKS:
            yield _rate(None, _name(links[link]), UNITS.get(kind, "B/s"), traffic[link])


def amounts(
    tracks: Iterable[Track], program: FoldedProgram
) -> tuple[dict[int, Amounts], dict[int, Amounts]]:
    """FLOPs by role, bytes by class of links: how much from when to when."""
    work: defaultdict[int, Amounts] = defaultdict(list)
    traffic: defaultdict[int, Amounts] = defaultdict(list)
    steps = {
        (role.role.index, name): row for role in program.roles for name, row in role.streams.items()
    }
    sent: set[int] = set()
    for track in tracks:
        begun, arrived = track.begun.tolist(), track.arrived.tolist()
        there = (track.transfers >= 0).tolist()
        rows = zip(
            steps[track.role, track.stream], track.start.tolist(), track.end.tolist(), strict=True
        )
        for n, (step, start, end) in enumerate(rows):
            if isinstance(step, ComputeStep):
                if step.flops:
                    work[track.role].append((start, end, step.flops))
                for link, size in step.carried:
                    traffic[link].append((start, end, size))
                continue
            columns = (column for column, met in enumerate(there[n]) if met)
            for number, column in zip(step.transfers, columns, strict=True):
                if number not in sent:
                    sent.add(number)
                    own = program.transfers[number].traffic
                    for link, load in own.loads:
                        when = begun[n][column], arrived[n][column]
                        traffic[link].append((*when, own.size * load))
    return work, traffic


def _rate(role: int | None, of: str, unit: str, amounts: Amounts) -> Rate:
    """The sum of what is spread over intervals: a step at the beginning and the end of each.

    >>> rate = _rate(0, "products", "FLOP/s", [(0.0, 2.0, 4.0), (1.0, 2.0, 1.0)])
    >>> rate.times.tolist(), rate.values.tolist()
    ([0.0, 1.0, 2.0], [2.0, 3.0, 0.0])
    """
    begin, end, much = np.array(amounts).T
    begin, end = begin.round(_DIGITS), end.round(_DIGITS)
    lasting = end > begin
    begin, end = begin[lasting], end[lasting]
    pace = much[lasting] / (end - begin)
    times, place = np.unique(np.concatenate((begin, end)), return_inverse=True)
    changes = np.zeros(len(times))
    np.add.at(changes, place, np.concatenate((pace, -pace)))
    values = np.cumsum(changes)
    values[np.abs(values) < 1e-9 * values.max(initial=0.0)] = 0.0  # what rounding leaves
    return Rate(role, of, unit, times, values)


def _name(link: LinkClass) -> str:
    return f"{link.name} ({link.count} alike)" if link.count > 1 else link.name


@dataclass(frozen=True, eq=False, kw_only=True)
class Record:
    """All tracks of one run; `program` gives their steps when they are wanted.

    `parts` holds the distinct splits of computations by cause, `kinds` the (cause, kind) of
    transfers. `passes_end` is when the last pass ended, `engine` what played it, and `because` why.
    Where stages end steps apart (`Program.apart`), a step takes the `period` and not until `end`;
    so it does where pipelines do not drain, of what was played of the same without its last steps
    (`base`) and of how many there are `more` here.

    What played without a clock knows two things without its steps: by `moments` when operations of
    a stage began and ended, given the places of their passes in its order and their numbers there
    (`sim.program.memory_levels.in_order`), and what links have `carried` (bytes).
    """

    roles: tuple[Role, ...]
    tracks: Sequence[Track]
    parts: Sequence[Parts]
    kinds: Sequence[tuple[Cause, str]]
    end: float
    passes_end: float
    steps: int
    program: Callable[[], FoldedProgram] = field(repr=False)
    events: int = 0
    engine: str = "replay"
    because: str = "no transfers share a link"
    period: float | None = None
    base: "Record | None" = None
    more: int = 1
    moments: Callable[[int, Indices, Indices], tuple[Floats, Floats]] | None = None
    carried: Callable[[], Mapping[LinkClass, float]] | None = None

    @property
    def step_time(self) -> float:
        """Seconds from one step to the next."""
        return self.end if self.period is None else self.period

    @classmethod
    def of(cls, runs: Runs, column: int, program: Callable[[], FoldedProgram]) -> "Record":
        """The record of one of some runs without a clock."""
        return cls(
            roles=runs.roles,
            tracks=tuple(of_columns(track, column) for track in runs.tracks),
            parts=[
                {
                    cause: float(np.broadcast_to(own, runs.end.shape)[column])
                    for cause, own in part.items()
                }
                for part in runs.parts
            ],
            kinds=runs.kinds,
            end=float(runs.end[column]),
            passes_end=float(runs.passes_end[column]),
            steps=runs.steps,
            program=program,
        )

    @property
    def runs(self) -> Runs:
        """The run as the only column."""
        return Runs(
            roles=self.roles,
            tracks=tuple(_in_a_column(track) for track in self.tracks),
            parts=self.parts,
            kinds=self.kinds,
            end=np.array([self.end]),
            passes_end=np.array([self.passes_end]),
            step=np.array([self.step_time]),
        )

    def repeated_apart(self, opened: Sequence[bool]) -> "Record":
        """The same run of stages that end apart; `opened` says which stages open a step by work."""
        spans = (self._span(role, opened[role.stage]) for role in self.roles)
        return replace(self, period=max(spans))

    def beyond(self, base: "Record", more: int) -> "Record":
        """The same run with the time that each of so many further steps takes beyond a base."""
        return replace(self, period=(self.end - base.end) / more, base=base, more=more)

    def _span(self, role: Role, opened: bool) -> float:
        """From the beginning of a role's first pass, what opens the step before it, to its end."""
        tracks = [track for track in self.tracks if track.role == role.index and len(track.end)]
        end = max((float(track.end[-1]) for track in tracks), default=0.0)
        compute = next((track for track in tracks if track.stream == COMPUTE_STREAM), None)
        if compute is None:
            return end
        passes = np.flatnonzero(compute.parts != COMMUNICATION)[int(opened) :]
        opening = float(compute.end[0]) if opened else 0.0
        return end - float(compute.start[passes[0]]) + opening if len(passes) else end

    @cached_property
    def timeline(self) -> Timeline:
        """The spans of all steps."""
        return Timeline(
            roles=self.roles,
            spans=Played(lambda: list(self._spans()), self._columns),
            end=self.end,
            step=self.period,
            events=self.events,
            rates=Deferred(lambda: list(rates(self.tracks, self.program()))),
        )

    def _columns(self) -> Columns:
        """Every computation, then every transfer, of each track."""
        causes: dict[Cause, int] = {}
        of_parts, of_kinds = (
            np.array([causes.setdefault(cause, len(causes)) for cause in own], dtype=np.intp)
            for own in (
                [next(iter(parts), COMPUTE) for parts in self.parts],
                [cause for cause, _ in self.kinds],
            )
        )
        tables, actions = list[np.ndarray](), list[Indices]()
        for track in self.tracks:
            run = track.parts != COMMUNICATION
            step, column = np.nonzero((track.transfers >= 0) & ~run[:, None])
            for begin, end, cause, computes in (
                (track.start[run], track.end[run], of_parts[track.parts[run]], 1.0),
                (track.begun[step, column], track.arrived[step, column],
                 of_kinds[track.transfers[step, column]], 0.0),
            ):  # fmt: skip
                role = np.full(len(begin), track.role)
                tables.append(np.stack((role, begin, end, cause, np.full(len(begin), computes))))
            actions += [track.actions[run], np.full((len(step), 3), -1, dtype=np.intp)]
        table = np.concatenate(tables, axis=1)
        return Columns(
            role=table[0].astype(np.intp),
            begin=table[1],
            end=table[2],
            computes=table[4] > 0,
            cause=table[3].astype(np.intp),
            actions=np.concatenate(actions),
            causes=tuple(causes),
        )

    def _spans(self) -> Iterator[Span]:
        program = self.program()
        steps = {
            (role.role.index, stream): steps
            for role in program.roles
            for stream, steps in role.streams.items()
        }
        facts = [_facts(transfer) for transfer in program.transfers]
        ways = [transfer.way for transfer in program.transfers]
        for track in self.tracks:
            yield from self._written(track, steps[track.role, track.stream], facts, ways)

    def _written(
        self,
        track: Track,
        steps: Sequence[Step],
        facts: Sequence[dict[str, object]],
        ways: Sequence[tuple[int, int] | None],
    ) -> Iterator[Span]:
        starts, ends, parts = track.start.tolist(), track.end.tolist(), track.parts.tolist()
        begun, arrived = track.begun.tolist(), track.arrived.tolist()
        kinds = track.transfers.tolist()
        for n, step in enumerate(steps):
            where = track.role, track.stream, step.name
            if isinstance(step, ComputeStep):
                split = tuple(self.parts[parts[n]].items())
                cause = split[0][0] if split else COMPUTE
                yield Span(*where, cause, starts[n], ends[n], _of_pass(step, split))
                continue
            flights = tuple(
                (*self.kinds[kind], begin, end)
                for kind, begin, end in zip(kinds[n], begun[n], arrived[n], strict=True)
                if kind >= 0
            )
            cause = flights[-1][0] if flights else WAITING
            fact = facts[step.transfers[-1]] if step.transfers else {}
            met = tuple((number, ways[number]) for number in step.transfers)
            args = {"transfers": flights, "meetings": met, **fact}
            yield Span(*where, cause, starts[n], ends[n], args)


def _in_a_column(track: Track) -> Track:
    times = (track.start, track.end, track.begun, track.arrived)
    start, end, begun, arrived = (time[..., None] for time in times)
    return replace(track, start=start, end=end, begun=begun, arrived=arrived)


def _of_pass(step: ComputeStep, parts: tuple[tuple[Cause, float], ...]) -> dict[str, object]:
    action = step.action
    return {
        "phase": action.kind if action else step.label,
        "microbatch": action.microbatch if action else -1,
        "chunk": action.chunk if action else 0,
        "parts": parts,
    }


def _facts(transfer: Transfer) -> dict[str, object]:
    return {
        "kind": transfer.kind,
        "bytes": transfer.bytes,
        "ranks": transfer.ranks,
        "algorithm": transfer.algorithm,
        "protocol": transfer.protocol,
    }


def flights_of(steps: Sequence[Step]) -> int:
    """The most transfers that one of these steps takes part in."""
    return max((len(s.transfers) for s in steps if isinstance(s, CommunicateStep)), default=0)
