"""Where the seconds went: every role's step split into causes that add up to the whole.

Compute, recomputation, communication inside a pass and the optimizer come from the passes' own
parts; what a pass lasts beyond them is the host's launches. While the compute stream runs nothing,
time belongs to the transfer in flight that it waits for (exposed communication), else to the
peers it waits for: other stages' passes (bubble) or slower replicas (stragglers).
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sim.engine.timeline import Role, Span, Timeline

BUBBLE, HOST, STRAGGLERS = "bubble", "host", "stragglers"
WAITING = "waiting"
_OWN_LINES = ("optimizer", "data communication", "embedding communication", STRAGGLERS, WAITING)
_NOISE = 1e-12

Account = dict[str, float]
Flight = tuple[str, str, float, float]  # cause, kind, begin, end


@dataclass(frozen=True, slots=True)
class _Context:
    end: float
    last_pass_end: float
    uneven: bool


def accounts(timeline: Timeline) -> list[Account]:
    """Per role, seconds by cause; each adds up to `timeline.end`."""
    passes = [span.end for span in timeline.spans if span.args.get("phase") in ("F", "B")]
    uneven = any(role.slowdown != 1.0 for role in timeline.roles)
    context = _Context(timeline.end, max(passes, default=0.0), uneven)
    by_role: list[list[Span]] = [[] for _ in timeline.roles]
    for span in timeline.spans:
        by_role[span.role].append(span)
    return [_account(spans, context) for spans in by_role]


def blame_stragglers(accounts: Sequence[Account], healthy: Sequence[Account]) -> None:
    """Move to the stragglers what a role waits for other stages beyond what it does without them.

    `healthy` are the same roles' accounts on a machine where nothing is slow.
    """
    for account, before in zip(accounts, healthy, strict=True):
        excess = account.get(BUBBLE, 0.0) - before.get(BUBBLE, 0.0)
        if excess > 0.0:
            account[BUBBLE] -= excess
            _add(account, STRAGGLERS, excess)


def critical_role(timeline: Timeline) -> Role:
    """The role whose last operation ends last; among ties the one with the lowest rank."""
    ends = [0.0] * len(timeline.roles)
    for span in timeline.spans:
        ends[span.role] = max(ends[span.role], span.end)
    latest = max(ends) * (1.0 - _NOISE)
    return min(
        (role for role in timeline.roles if ends[role.index] >= latest),
        key=lambda role: role.first_rank,
    )


def bubble_fraction(timeline: Timeline, accounts: Sequence[Account]) -> float:
    """Share of stage-seconds spent waiting for other stages' passes.

    Optimizer, data-parallel communication and straggler waits are left out of both sides, so that
    equal stages without communication give (p-1)/(m+p-1) (Narayanan et al. 2021, section 2.2).
    """
    bubble = total = 0.0
    for role, account in zip(timeline.roles, accounts, strict=True):
        bubble += role.ranks * account.get(BUBBLE, 0.0)
        own = sum(account.get(cause, 0.0) for cause in _OWN_LINES)
        total += role.ranks * (timeline.end - own)
    return bubble / total if total > 0 else 0.0


def _account(spans: Iterable[Span], context: _Context) -> Account:
    mine = list(spans)
    compute = sorted((s for s in mine if s.stream == "compute"), key=lambda s: (s.start, s.end))
    beside = _Beside([s for s in mine if s.stream != "compute"])
    account: Account = {}
    clock = 0.0
    for span in compute:
        if span.start > clock:
            _wait(account, clock, span.start, beside.blocking(clock, span.start), context)
        if "parts" in span.args:
            _run(account, span)
        else:
            _wait(account, span.start, span.end, span.args["transfers"], context)
        clock = span.end
    if clock < context.end:
        _wait(account, clock, context.end, beside.blocking(clock, context.end), context)
    return account


def _add(account: Account, cause: str, seconds: float) -> None:
    if seconds > 0.0:
        account[cause] = account.get(cause, 0.0) + seconds


def _run(account: Account, span: Span) -> None:
    left = span.duration
    for cause, seconds in span.args["parts"]:
        _add(account, cause, min(seconds, left))
        left -= min(seconds, left)
    _add(account, HOST, left)


class _Beside:
    """Communications on other streams than compute, each stream in order of time."""

    def __init__(self, spans: list[Span]) -> None:
        self.streams: dict[str, list[Span]] = {}
        for span in spans:
            self.streams.setdefault(span.stream, []).append(span)
        self.ends = {name: [s.end for s in stream] for name, stream in self.streams.items()}

    def blocking(self, begin: float, end: float) -> list[Flight]:
        """Transfers of the streams whose communication ended just when the wait did."""
        flights: list[Flight] = []
        for name, spans in self.streams.items():
            last = bisect_right(self.ends[name], end) - 1
            if last < 0 or spans[last].end != end:
                continue
            while last >= 0 and spans[last].end > begin:
                flights += spans[last].args["transfers"]
                last -= 1
        return flights


def _wait(
    account: Account, begin: float, end: float, flights: Iterable[Flight], context: _Context
) -> None:
    """Split [begin, end] into transfers in flight and waiting for those who take part."""
    clock, behind = begin, list(flights)
    for cause, kind, start, stop in sorted(behind, key=lambda flight: flight[3]):
        start, stop = max(start, clock), min(stop, end)
        if stop <= clock:
            continue
        if start > clock:
            _peers(account, clock, start, cause, kind, context)
        _add(account, cause, stop - start)
        clock = stop
    if clock < end:
        _peers(account, clock, end, WAITING, "", context)


def _peers(
    account: Account, begin: float, end: float, cause: str, kind: str, context: _Context
) -> None:
    """Waiting for peers: for their passes a bubble, afterwards for whatever else they do."""
    passes_until = min(max(context.last_pass_end, begin), end)
    replicas = kind not in ("send", "") and context.uneven
    _add(account, STRAGGLERS if replicas else BUBBLE, passes_until - begin)
    _add(account, STRAGGLERS if replicas else cause, end - passes_until)
