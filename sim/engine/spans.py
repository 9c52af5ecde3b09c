"""The spans of a played run, and the rates of devices and links over time.

Rates are FLOP/s of each role and bytes a second on links. An operation spreads its FLOPs, and the
bytes of the collectives inside it, evenly over its time. A transfer spreads its bytes evenly from
its beginning to its end. So the integral of every rate is the work done.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from sim.config.dataclass import dataclass
from sim.engine.costs import Parts
from sim.engine.folded import ComputeStep, FoldedProgram, LinkClass, Step, Transfer
from sim.engine.timeline import Columns, Rate, Span
from sim.engine.tracks import COMMUNICATION, Indices, Track
from sim.hardware.cluster.host import UNITS
from sim.program.causes import COMPUTE, WAITING, Cause

_DIGITS = 9  # decimals of rounded seconds: successive operations must not seem to overlap

Amounts = list[tuple[float, ...]]  # begin, end (s), amount; of links also payload bytes

MOST_LINKS = 8  # links of each kind whose rates are shown, the most loaded first


@dataclass(frozen=True)
class Spans:
    """Writes spans and rates from the tracks of a record (`sim.engine.record.Record`)."""

    tracks: Sequence[Track]
    parts: Sequence[Parts]
    kinds: Sequence[tuple[Cause, str]]
    program: Callable[[], FoldedProgram]

    def rates(self) -> Iterator[Rate]:
        """Yield each role's FLOP/s of matrix products, then the B/s of the most loaded links."""
        program = self.program()
        work, traffic = amounts(self.tracks, program)
        for role, spans in work.items():
            yield _rate(role, "products", "FLOP/s", spans)
        links = program.links
        shown: Counter[str] = Counter()
        for link in sorted(
            traffic, key=lambda link: (-sum(size for _, _, size, _ in traffic[link]), link)
        ):
            kind = links[link].name.split()[0]
            shown[kind] += 1
            if shown[kind] <= MOST_LINKS:
                yield _rate(None, _name(links[link]), UNITS.get(kind, "B/s"), traffic[link])

    def columns(self) -> Columns:
        """The columns of all tracks in turn: computations of a track, then its transfers."""
        causes: dict[Cause, int] = {}
        of_parts, of_kinds = (
            np.array([causes.setdefault(cause, len(causes)) for cause in used], dtype=np.intp)
            for used in (
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

    def spans(self) -> Iterator[Span]:
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
        facts: Sequence[dict[str, Any]],
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
            each = tuple(facts[number] for number in step.transfers)
            met = tuple((number, ways[number]) for number in step.transfers)
            args = {"transfers": flights, "meetings": met, "facts": each, **_of_all(each)}
            yield Span(*where, cause, starts[n], ends[n], args)


def amounts(
    tracks: Iterable[Track], program: FoldedProgram
) -> tuple[dict[int, Amounts], dict[int, Amounts]]:
    """FLOPs by role and bytes by class of links, as (begin, end, amount). Links have a fourth
    number, the bytes without the protocols' overhead."""
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
                for link, *sizes in step.carried:
                    traffic[link].append((start, end, *sizes))
                continue
            columns = (column for column, met in enumerate(there[n]) if met)
            for number, column in zip(step.transfers, columns, strict=True):
                if number not in sent:
                    sent.add(number)
                    when = begun[n][column], arrived[n][column]
                    for link, *sizes in program.transfers[number].traffic.carried():
                        traffic[link].append((*when, *sizes))
    return work, traffic


def _rate(role: int | None, of: str, unit: str, amounts: Amounts) -> Rate:
    """The rate of amounts that are spread evenly over intervals: a step function that changes at
    the beginning and the end of each interval.

    >>> rate = _rate(0, "products", "FLOP/s", [(0.0, 2.0, 4.0), (1.0, 2.0, 1.0)])
    >>> rate.times.tolist(), rate.values.tolist()
    ([0.0, 1.0, 2.0], [2.0, 3.0, 0.0])
    """
    begin, end, much, *_ = np.array(amounts).T
    begin, end = begin.round(_DIGITS), end.round(_DIGITS)
    lasting = end > begin
    begin, end = begin[lasting], end[lasting]
    pace = much[lasting] / (end - begin)
    times, place = np.unique(np.concatenate((begin, end)), return_inverse=True)
    changes = np.zeros(len(times))
    np.add.at(changes, place, np.concatenate((pace, -pace)))
    values = np.cumsum(changes)
    values[np.abs(values) < 1e-9 * values.max(initial=0.0)] = 0.0  # rounding errors
    return Rate(role, of, unit, times, values)


def _name(link: LinkClass) -> str:
    return f"{link.name} ({link.count} alike)" if link.count > 1 else link.name


def _of_pass(step: ComputeStep, parts: tuple[tuple[Cause, float], ...]) -> dict[str, object]:
    action = step.action
    return {
        "phase": action.kind if action else step.label,
        "microbatch": action.microbatch if action else -1,
        "chunk": action.chunk if action else 0,
        "parts": parts,
    }


def _of_all(each: Sequence[dict[str, Any]]) -> dict[str, object]:
    """The facts of a span's last transfer, with the bytes of all its transfers."""
    return {**each[-1], "bytes": sum(facts["bytes"] for facts in each)} if each else {}


def _facts(transfer: Transfer) -> dict[str, Any]:
    return {
        "kind": transfer.kind,
        "bytes": transfer.bytes,
        "ranks": transfer.ranks,
        "algorithm": transfer.algorithm,
        "protocol": transfer.protocol,
    }
