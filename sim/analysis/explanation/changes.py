"""Effects of single changes of a plan: each choice that the search makes is changed alone."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from sim.analysis.search.choices.choice import Choice, written
from sim.analysis.search.choices.mesh import sizes
from sim.analysis.search.choices.named import choices
from sim.analysis.search.space import Space
from sim.config.counting import counted
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.stopping import so_far
from sim.parallel.plan import Plan
from sim.results.result import Result
from sim.scenario.setup import PlanSetup
from sim.simulate import answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A plan with a single choice changed: the choice before and after, and the step with this
    plan."""

    choice: str
    before: str
    after: str
    result: Result

    @property
    def step_time(self) -> float:
        return self.result.step_time


def changes(setup: PlanSetup, result: Result) -> list[Change]:
    """Return changes of the plan, and of an exchange that blocks the stages, the best first. After
    each change, the step fits into memory and is shorter (or the step did not fit before)."""
    space = _space(setup)
    tried = [*_neighbours(setup, space), *_exchanges(setup)]
    made = so_far((other, _made(other.setup)) for other in tried)
    found = [
        Change(choice=other.choice, before=other.before, after=other.after, result=then)
        for other, then in counted(made, total=len(tried), unit="plan")
        if then is not None and then.fits
    ]
    shorter = [change for change in found if change.step_time < result.step_time or not result.fits]
    return sorted(shorter, key=lambda change: change.step_time)


def _space(setup: PlanSetup) -> Space:
    job = setup.job
    return Space(
        model=job.model,
        topology=setup.machine.topology,
        stack=job.stack,
        global_batch=job.plan.global_batch,
        precision=job.plan.precision,
    )


class _Other(NamedTuple):
    """A changed choice: its name, the old and new value, and a function that makes the setup."""

    choice: str
    before: str
    after: str
    setup: Callable[[], PlanSetup]


def _neighbours(setup: PlanSetup, space: Space) -> Iterator[_Other]:
    for choice in choices():
        for before, after, plan in _others(choice, space, setup.job.plan):
            yield _Other(choice.name, before, after, partial(setup.replanned, plan))


def _others(choice: Choice, space: Space, plan: Plan) -> Iterator[tuple[str, str, Plan]]:
    """Yield the plan with other values of a choice: the next larger and smaller size, or every
    value of a choice without an order."""
    if not choice.applies(plan):
        return
    named = Plan.__dataclass_fields__
    sized = choice.name in named and choice.name in [size.name for size in sizes()]
    # A size may use all GPUs that the other sizes leave.
    alone: dict[str, Any] = {choice.name: 1, "dp": None} if sized else {}
    possible = choice.possible(space, replace(plan, **alone))
    now = getattr(plan, choice.name, None)
    for value in _next([option for option in possible if choice.usual(space, plan, option)], now):
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


def _exchanges(setup: PlanSetup) -> Iterator[_Other]:
    """Yield a setup whose stages do not wait for the messages between them, if the job's stages
    wait. The stack decides this."""
    job, now = setup.job, setup.program.exchange.style
    if job.plan.pp > 1 and now == "batched":
        stack = replace(job.stack, pipeline_exchange="overlapped", exchange_sync=False)
        made = partial(setup.replanned, job.plan, stack)
        yield _Other("stack.pipeline_exchange", now, "overlapped", made)


def _made(other: Callable[[], PlanSetup]) -> Result | None:
    """Return the step of another setup; None where the setup cannot run."""
    try:
        return answer(other())
    except InputError:
        return None
