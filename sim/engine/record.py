"""The record of a run: when every step of every stream ran, in arrays.

Accounts are read off the arrays; the timeline's spans are written down only if somebody looks.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from sim.engine.costs import Parts
from sim.engine.folded import CommunicateStep, ComputeStep, FoldedProgram, Step, Transfer
from sim.engine.rates import rates
from sim.engine.timeline import Deferred, Role, Span, Timeline
from sim.engine.tracks import COMMUNICATION, Track
from sim.program.causes import COMPUTE, WAITING, Cause
from sim.program.operations import COMPUTE_STREAM


@dataclass(frozen=True, eq=False, kw_only=True)
class Record:
    """All tracks of one run; `program` gives their steps when they are wanted.

    `parts` holds the distinct splits of computations by cause, `kinds` the (cause, kind) of
    transfers. `passes_end` is when the last pass ended, `engine` what played it, and `because` why.
    Where stages end steps apart (`Program.apart`), a step takes the `period` and not until `end`;
    so it does where pipelines do not drain, of what was played of the same without its last steps
    (`base`) and of how many there are `more` here.
    """

    roles: tuple[Role, ...]
    tracks: tuple[Track, ...]
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

    @property
    def step_time(self) -> float:
        """Seconds from one step to the next."""
        return self.end if self.period is None else self.period

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
            spans=Deferred(lambda: list(self._spans())),
            end=self.end,
            step=self.period,
            events=self.events,
            rates=Deferred(lambda: list(rates(self.tracks, self.program()))),
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
