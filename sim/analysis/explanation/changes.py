"""What one change of the plan would do: every choice of the search, one at a time."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from sim.analysis.search.choices.choice import Choice, written
from sim.analysis.search.choices.mesh import sizes
from sim.analysis.search.choices.named import choices
from sim.analysis.search.space import Space
from sim.config.errors import InputError
from sim.config.progress import counted
from sim.config.stopping import so_far
from sim.parallel.plan import Plan
from sim.results.result import Result
from sim.scenario.setup import PlanSetup
from sim.simulate import answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A plan in which one choice is another, what it was, and the step that it makes."""

    choice: str
    before: str
    after: str
    result: Result

    @property
    def step_time(self) -> float:
        return self.result.step_time


def changes(setup: PlanSetup, result: Result) -> list[Change]:
    """Changes that fit into memory and make the step shorter (or make it fit), the best first."""
    plan, space = setup.job.plan, _space(setup)
    tried = list(_neighbours(space, plan))
    made = so_far((named, _made(setup, other)) for *named, other in tried)
    found = [
        Change(choice=choice, before=before, after=after, result=other)
        for (choice, before, after), other in counted(made, total=len(tried), unit="plan")
        if other is not None and other.fits
    ]
    shorter = [one for one in found if one.step_time < result.step_time or not result.fits]
    return sorted(shorter, key=lambda one: one.step_time)


def _space(setup: PlanSetup) -> Space:
    job = setup.job
    return Space(
        model=job.model,
        topology=setup.machine.topology,
        stack=job.stack,
        global_batch=job.plan.global_batch,
        precision=job.plan.precision,
    )


def _neighbours(space: Space, plan: Plan) -> Iterator[tuple[str, str, str, Plan]]:
    for choice in choices():
        for before, after, other in _others(choice, space, plan):
            yield choice.name, before, after, other


def _others(choice: Choice, space: Space, plan: Plan) -> Iterator[tuple[str, str, Plan]]:
    """The plan with other values: the next of a size up and down, all of what has no order."""
    if not choice.applies(plan):
        return
    named = Plan.__dataclass_fields__
    sized = choice.name in named and choice.name in [size.name for size in sizes()]
    # Sizes are chosen with all of the GPUs that the others leave.
    alone: dict[str, Any] = {choice.name: 1, "dp": None} if sized else {}
    possible = choice.possible(space, replace(plan, **alone))
    now = getattr(plan, choice.name, None)
    for value in _next([one for one in possible if choice.usual(space, plan, one)], now):
        changed: dict[str, Any] = {choice.name: value, **({"dp": None} if sized else {})}
        plain = sized or choice.take is None
        other = replace(plan, **changed) if plain else choice.take(space, plan, value)  # type: ignore[misc]
        if other != plan:
            yield written(_said(now)), written(value), other


def _said(value: Any) -> Any:
    return "as it is" if value is None or not isinstance(value, str | int | tuple) else value


def _next(values: list[Any], now: Any) -> list[Any]:
    if not isinstance(now, int) or isinstance(now, bool):
        return [value for value in values if value != now]
    below, above = ([v for v in values if v < now], [v for v in values if v > now])
    return [*below[-1:], *above[:1]]


def _made(setup: PlanSetup, plan: Plan) -> Result | None:
    """Its step with this plan; None where that cannot run."""
    try:
        return answer(setup.replanned(plan))
    except InputError:
        return None
