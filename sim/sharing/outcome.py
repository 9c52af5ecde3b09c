"""What a run of workers that share updates answers."""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from sim.engine.timeline import Role, Timeline
from sim.sharing.team import Team
from sim.sharing.worker import Worker

if TYPE_CHECKING:
    import pandas as pd

LABEL = "the effect of staleness and averaging on this task, not a forecast of a large model's loss"
_CAUSES = ("compute", "optimizer", "compression", "communication", "server", "waiting", "down")
_GOSSIP = {
    "d_psgd": "D-PSGD",
    "ad_psgd": "AD-PSGD",
    "sgp": "push-sum",
    "random_pairs": "random pairs",
}
_BUSIEST = 16
_STEPS_SHOWN = 10
_NOT_IN_JSON = ("timeline",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How fast updates were shared, and what the task made of them.

    `time` (s) is the whole run's, `shares` the mean over workers of how they spent it (adding up
    to 1; `idle` is after a worker's last step), `workers` one row each. `staleness` says how many
    updates came between reading the weights and updating them: mean, largest and how often each.
    `links` are the busiest with the bytes they carried; `bytes` is what all links carried.
    `straggler_seconds` is what the run takes longer than with nothing slow. `curve` holds (s,
    samples, loss) on the way and `time_to_target` when the loss first was as low as asked; both
    are what `label` says.
    """

    scenario: str
    method: str
    time: float
    updates: int
    samples: float
    updates_per_second: float
    samples_per_second: float
    dropped: int
    shares: dict[str, float]
    staleness: dict[str, Any]
    workers: tuple[dict[str, Any], ...]
    links: tuple[dict[str, Any], ...]
    bytes: float
    straggler_seconds: float
    loss: float | None
    curve: tuple[tuple[float, float, float], ...]
    time_to_target: float | None
    task: str
    label: str
    events: int
    wall_seconds: float
    warnings: tuple[str, ...] = ()
    timeline: Timeline = field(repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; everything but the timeline."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _NOT_IN_JSON}

    def to_frame(self) -> "pd.DataFrame":
        """The timeline as a table, one row a span."""
        return self.timeline.to_frame()

    def time_to(self, loss: float) -> float | None:
        """Seconds until the loss was first that low; None where it never was."""
        return next((at for at, _, now in self.curve if now <= loss), None)

    @property
    def excerpt(self) -> Timeline:
        """The first steps alone: what a picture has room for."""
        steps = max((row["steps"] for row in self.workers), default=1)
        end = min(self.time, self.time * _STEPS_SHOWN / max(steps, 1))
        spans = [
            span if span.end <= end else replace(span, end=end)
            for span in self.timeline.spans
            if span.start < end
        ]
        return replace(self.timeline, spans=spans, end=end)

    def __str__(self) -> str:
        return str(import_module("sim.results.sharing").text(self))

    def _repr_html_(self) -> str:
        return str(import_module("sim.results.sharing").html(self))


def outcome(name: str, team: Team, healthy: Team | None, *, wall_seconds: float) -> Outcome:
    """Read a team that has run, and the same without stragglers if it had any."""
    record, end = team.record, finished(team)
    final = team.server.weights if team.server else team.average()
    learnt = bool(final.size)
    curve = tuple(record.curve)
    target = team.plan.learning.target if team.plan.learning else None
    rows = tuple(_row(me, end) for me in team.workers)
    result = Outcome(
        scenario=name,
        method=title(team),
        time=end,
        updates=record.updates,
        samples=record.samples,
        updates_per_second=record.updates / end if end else 0.0,
        samples_per_second=record.samples / end if end else 0.0,
        dropped=record.dropped,
        shares={key: sum(row[key] for row in rows) / len(rows) for key in (*_CAUSES, "idle")},
        staleness=_staleness(team),
        workers=rows,
        links=tuple(_links(team, end)),
        bytes=sum(team.world.carried().values()),
        straggler_seconds=_lost(team, healthy, end),
        loss=team.task.loss(final) if learnt else None,
        curve=curve,
        time_to_target=None,
        task=team.task.name,
        label=LABEL if learnt else "",
        timeline=team.world.timeline(_roles(team), end),
        events=team.world.events,
        wall_seconds=wall_seconds,
        warnings=tuple(_warnings(team)),
    )
    return result if target is None else replace(result, time_to_target=result.time_to(target))


def title(team: Team) -> str:
    """The method in a few words."""
    plan = team.plan
    details = []
    if plan.method == "parameter_server":
        known = {"ssp": f"bound {plan.bound}", "backup": f"{plan.backup} backup workers"}
        details.append(known.get(plan.mode, {"bsp": "synchronous"}.get(plan.mode, "asynchronous")))
    if plan.method == "gossip":
        details.append(_GOSSIP[plan.algorithm])
    if plan.overlap:
        details.append("overlapped")
    if plan.compression.kind != "none":
        details.append(plan.compression.kind)
    name = plan.method.replace("_", " ")
    return f"{name} ({', '.join(details)})" if details else name


def finished(team: Team) -> float:
    """When the last worker was through, or the time that the plan allows."""
    if team.plan.until is not None:
        return team.plan.until
    return max(team.record.last, *(me.ended for me in team.workers))


def _row(me: Worker, end: float) -> dict[str, Any]:
    """A worker's seconds as shares of the run, with what it was at when the run ended."""
    seconds = dict(me.seconds)
    if me.doing:
        cause, began = me.doing
        seconds[cause] = seconds.get(cause, 0.0) + end - began
    shares = {cause: seconds.get(cause, 0.0) / end if end else 0.0 for cause in _CAUSES}
    idle = max(0.0, 1.0 - sum(shares.values()))
    return {"rank": me.rank, "steps": me.steps, **shares, "idle": idle}


def _staleness(team: Team) -> dict[str, Any]:
    counted = dict(sorted(team.record.staleness.items()))
    total = sum(counted.values())
    return {
        "mean": sum(late * times for late, times in counted.items()) / total if total else 0.0,
        "max": max(counted, default=0),
        "histogram": {str(late): times for late, times in counted.items()},
    }


def _links(team: Team, end: float) -> Iterator[dict[str, Any]]:
    busy, carried = team.world.busy(end), team.world.carried()
    for name in sorted(busy, key=lambda name: (-busy[name], name))[:_BUSIEST]:
        yield {"link": name, "bytes": carried[name], "busy": busy[name]}


def _lost(team: Team, healthy: Team | None, end: float) -> float:
    """Seconds more than without stragglers; where the time is given, what the lost samples took."""
    if healthy is None:
        return 0.0
    if team.plan.until is None:
        return end - finished(healthy)
    return end * (1.0 - team.record.samples / max(healthy.record.samples, 1.0))


def _roles(team: Team) -> list[Role]:
    return [
        Role(
            index=me.rank,
            name=f"worker {me.rank}",
            stage=0,
            ranks=len(me.place.gpus),
            first_rank=me.place.first,
            slowdown=round(me.usual, 3),
        )
        for me in team.workers
    ]


def _warnings(team: Team) -> Iterator[str]:
    if team.world.full:
        yield f"only the first {team.world.keep:,} spans are kept for pictures and traces"
    stuck = [me.rank for me in team.workers if not me.ended and not me.gone]
    if stuck and team.plan.until is None:
        yield f"workers {stuck} wait for somebody who does not come"
    if gone := [me.rank for me in team.workers if me.gone]:
        yield f"workers {gone} failed and did not come back"
