"""The search for a layout: layouts are bounded, then evaluated, and the best are played in full.

Meshes with the shortest lower bounds are looked at first. Layouts that can no longer come near the
best (`sim.analysis.search.bound`), or that do not fit in memory, are left out. All other layouts
are evaluated (`sim.analysis.search.evaluate`), and the best layouts are played with contention.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain

from sim.analysis import executors
from sim.analysis.search.answer import SearchResult
from sim.analysis.search.choices.named import choices
from sim.analysis.search.enlarging import most_gpus, remedies
from sim.analysis.search.layouts import Pruned, meshes, passes
from sim.analysis.search.simplicity import ROOMY, score
from sim.analysis.search.space import Space
from sim.analysis.search.standings import Layout, Standings
from sim.analysis.search.tasks import Bounded, Mesh, bounded, evaluated_layouts, families
from sim.config.counting import counted, metered, part, whole
from sim.config.errors import FitError, InputError
from sim.model.kinds import check_layers
from sim.parallel.plan import MOST_MICROBATCHES, Plan
from sim.results.result import Result
from sim.scenario.setup import PlanSetup, assemble
from sim.simulate import answer, garbage_left
from sim.uncertainty.order import told_apart

BEST = 8
WITHIN = 1.25  # layouts that take up to this many times as long as the best are kept
_BOUNDED, _EVALUATED = 0.2, 0.5  # shares of the progress bar; playing the best takes the rest
_WAVE = 2  # meshes of the first wave


@whole("layouts")
def search(
    space: Space, *, jobs: executors.Jobs = None, best: int = BEST, within: float = WITHIN
) -> SearchResult:
    """Return the layouts of a space that take at most `within` times as long as the best without
    contention; the fastest `best` layouts are played in full. Raises `InputError` where no layout
    divides the GPUs and fits."""
    with garbage_left():
        return _search(space, jobs, best, within)


def _search(space: Space, jobs: executors.Jobs, best: int, within: float) -> SearchResult:
    began = time.perf_counter()
    check_layers(space.model)
    pruned, evaluated = Pruned(), list[Layout]()
    some = families(space, meshes(space, pruned), began)
    standings = Standings(best=best, within=within)
    with part(_BOUNDED):
        promising = _most_promising_first(some, jobs, pruned)
    with (
        _stoppable() as searching,
        part(_EVALUATED),
        metered(len(promising), unit="mesh") as more,
    ):
        for wave in _waves(promising):
            tasks = [(*bounds, standings) for bounds in wave]
            for found, left_out in executors.answers(evaluated_layouts, tasks, jobs=jobs):
                evaluated += found
                pruned.add(left_out)
                more(1)
            standings = Standings(best=best, within=within).joined(evaluated)
    if searching.stopped and not evaluated:
        raise KeyboardInterrupt
    if not evaluated:
        raise _nothing(space, pruned, some)
    evaluated.sort(key=_rank)
    count = sum(layout.uncontended <= within * evaluated[0].uncontended for layout in evaluated)
    pruned.slower += len(evaluated) - count
    evaluated = evaluated[:count]
    searched = time.perf_counter() - began
    ranked = list(evaluated)
    with _stoppable() as playing, part(1.0 - _BOUNDED - _EVALUATED):
        _play(space, ranked, best, jobs)
    if playing.stopped:  # layouts that were not played seem faster than they are
        ranked = sorted((layout for layout in ranked if layout.result), key=_rank) or evaluated
    recommended = ranked[0]
    with _stoppable():
        recommended = _simplest(space, ranked, jobs, min(best, len(ranked)))
    return SearchResult(
        space=space,
        recommended=recommended,
        best=tuple(ranked[:best]),
        layouts=tuple(evaluated),
        pruned=pruned,
        search_seconds=searched,
        wall_seconds=time.perf_counter() - began,
        stopped=searching.stopped or playing.stopped,
    )


@dataclass(slots=True)
class _Stoppable:
    stopped: bool = False


@contextmanager
def _stoppable() -> Iterator[_Stoppable]:
    """Run work that Ctrl-C ends without an error; the caller uses its results so far."""
    stoppable = _Stoppable()
    try:
        yield stoppable
    except KeyboardInterrupt:
        stoppable.stopped = True


_Bounds = tuple[Mesh, list[Bounded]]


def _most_promising_first(
    some: Sequence[Sequence[Mesh]], jobs: executors.Jobs, pruned: Pruned
) -> list[_Bounds]:
    """Return meshes with their bounded passes, shortest bounds first. `pruned` counts the layouts
    that are left out."""
    promising = list[_Bounds]()
    found = executors.answers(bounded, some, jobs=jobs)
    for mesh, rows, left_out in chain.from_iterable(counted(found, total=len(some), unit="family")):
        promising += [(mesh, rows)] if rows else []
        pruned.add(left_out)
    return sorted(promising, key=lambda bounds: (bounds[1][0][0], bounds[0].number))


def _waves(some: Sequence[_Bounds]) -> Iterator[Sequence[_Bounds]]:
    """Yield meshes in growing waves. Each wave uses the standings that earlier waves have left, so
    the result does not depend on the number of processes."""
    first, size = 0, _WAVE
    while first < len(some):
        yield some[first : first + size]
        first, size = first + size, size + 1


def _play(space: Space, ranked: list[Layout], best: int, jobs: executors.Jobs) -> None:
    """Play the best layouts in full, and also layouts that contention then puts among the best."""
    first = min(best, len(ranked))
    while asked := [(space, number, layout) for number, layout in enumerate(ranked[:best])
                    if layout.result is None]:  # fmt: skip
        results = executors.answers(_result, asked, jobs=jobs, before=first)
        for number, result in counted(results, total=len(asked), unit="layout played"):
            ranked[number] = replace(ranked[number], result=result)
        ranked.sort(key=_rank)


def _simplest(space: Space, ranked: Sequence[Layout], jobs: executors.Jobs, before: int) -> Layout:
    """Return the simplest layout that cannot be told apart from the fastest played layout. Layouts
    that leave a tenth of the memory free come first. `before` layouts were played together."""
    fastest = ranked[0]
    if fastest.result is None:
        return fastest
    longest = fastest.step_time * (1.0 + told_apart(fastest.result.interval["apart"]))
    alike = [layout for layout in ranked if layout.step_time <= longest]
    most = ROOMY * space.topology.device.usable_memory
    for layout in sorted(
        alike, key=lambda layout: (layout.memory > most, score(layout.plan), *_rank(layout))
    ):
        result = layout.result
        if result is None:
            task = space, 0, layout
            ((_, result),) = executors.answers(_result, [task], jobs=jobs, before=before)
        if result.step_time <= longest:
            return replace(layout, result=result)
    return fastest


def _result(task: tuple[Space, int, Layout]) -> tuple[int, Result]:
    """Return a layout's number and result. The timeline is left out, since the process that asks
    does not need it."""
    space, number, layout = task
    result = answer(replace(assembled(space, layout.plan), model=space.named))
    return number, replace(
        result, timeline=replace(result.timeline, spans=[], rates=()), memory_curves=()
    )


def assembled(space: Space, plan: Plan) -> PlanSetup:
    """Return a layout as the setup of a scenario."""
    return assemble(
        "plan", model=space.model, stack=space.stack, topology=space.topology, plan=plan
    )


def _rank(layout: Layout) -> tuple[float, float, str]:
    """Order by time, then memory, then name, so the order never depends on chance."""
    return layout.step_time, layout.memory, str(layout.plan)


def _divides(space: Space) -> bool:
    """Return whether a space has any layout, fitting or not."""
    return any(True for mesh in meshes(space, Pruned()) for _ in passes(space, mesh))


def _nothing(space: Space, pruned: Pruned, tried: Sequence[Sequence[Mesh]]) -> InputError:
    """Return the error that says why no layout was evaluated on the meshes that were tried."""
    if pruned.memory:
        fault = f"none of {pruned.memory} layouts fits in memory"
        most = f"{most_gpus(space):,} GPUs"
        more = f"neither other choices nor up to {most} help; take GPUs with more memory"
        return FitError("sim plan", fault, "; ".join(remedies(space)) or more)
    gpus, batch = space.gpus, space.global_batch
    every = chain.from_iterable(tried)
    if refusal := next((error for mesh in every for error in mesh.layouts().refusals), None):
        fault = f"no layout of {gpus} GPUs suits the model: {refusal.what}"
        return InputError("sim plan", fault, refusal.remedy)
    names = () if _divides(space) else reversed([choice.name for choice in choices()])
    for name in filter(space.only.__contains__, names):
        others = {key: values for key, values in space.only.items() if key != name}
        if _divides(replace(space, only=others)):
            words = " or ".join(space.only[name])
            beside = f" with the values of {', '.join(others)} in --only" if others else ""
            fault = f"no layout of {gpus} GPUs for this model has {name} = {words}{beside}"
            return InputError("sim plan, --only", fault, f"leave {name} out to see other values")
    most = f"in at most {MOST_MICROBATCHES:,} micro-steps"
    fault = f"no layout of {gpus} GPUs divides {batch} sequences {most}, and the model's layers"
    return InputError("sim plan", fault, "use a global batch with more divisors")
