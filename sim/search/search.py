"""The search for a layout: bounded first, then evaluated, and the best few played in full.

What has the shortest lower bounds is looked at first. What then cannot come near the best any more
is left out (`sim.search.bound`), what does not fit in memory too; the rest is evaluated
(`sim.search.evaluate`), and the best are played, contention included.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from importlib import import_module
from itertools import groupby
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from sim.config.errors import FitError, InputError
from sim.config.progress import counted, metered, part, whole
from sim.frameworks.jobs import emitted
from sim.hardware.cluster.price import per_million
from sim.model.counts import model_flops
from sim.model.kinds import check_layers
from sim.parallel.known import Known
from sim.parallel.plan import MOST_MICROBATCHES, Plan
from sim.results.answer import Answer, Inputs, plain
from sim.results.result import Result
from sim.scenario.scenario import Scenario
from sim.scenario.setup import Setup, assemble
from sim.search.evaluate import Candidate
from sim.search.layouts import Pruned, layouts, meshes
from sim.search.mesh_layouts import MeshLayouts
from sim.search.space import Space
from sim.search.standings import Layout, Standings
from sim.simulate import garbage_left, run
from sim.sweeps import executors
from sim.uncertainty.intervals import faster

if TYPE_CHECKING:
    import pandas as pd

BEST = 20
WITHIN = 1.25  # how much slower than the best a layout may be and still be of interest
_BOUNDED, _EVALUATED = 0.2, 0.5  # of the time; the rest for playing the best
_WAVE = 2  # families that are looked at first
_ROUND = 20  # layouts of a family that are evaluated together


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult(Answer):
    """The outcome of a search: the best layouts, fastest first, and every layout evaluated.

    The search itself took `search_seconds`, with playing the best `wall_seconds`. One that was
    `stopped` (Ctrl-C) has looked at some of the families of layouts, or played some of the best.
    """

    view = "sim.search.text"
    picture = "sim.plots.pareto"
    unwritten = ("space", "best", "layouts", "search_seconds")
    derived: ClassVar[Mapping[str, str]] = {
        "inputs": "inputs",
        "best": "rows",
        "evaluated": "evaluated",
        "pareto": "front",
        "why": "why",
    }

    space: Space
    best: tuple[Layout, ...]
    layouts: tuple[Layout, ...]
    pruned: Pruned
    search_seconds: float
    wall_seconds: float
    stopped: bool = False

    @property
    def pareto(self) -> tuple[Layout, ...]:
        """Layouts than which none is both faster (uncontended) and smaller, fastest first."""
        played = {str(layout.plan): layout for layout in self.best}
        front: list[Layout] = []
        for layout in sorted(self.layouts, key=_uncontended):
            if not front or layout.memory < front[-1].memory:
                front.append(played.get(str(layout.plan), layout))
        return tuple(front)

    @property
    def inputs(self) -> Inputs:
        space = self.space
        return Inputs(
            model=space.named,
            cluster=space.topology.name,
            device=space.topology.device.name,
            gpus=space.gpus,
            stack=space.stack.name,
            precision=space.precision,
            batch=space.global_batch,
            tokens=space.model.tokens,
            plan={"only": dict(space.only), "without": dict(space.without)},
            price=str(space.topology.price or ""),
            notes=space.model.notes,
        )  # fmt: skip

    @property
    def evaluated(self) -> int:
        return len(self.layouts)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The best layouts with the keys of a run, their rank and plan."""
        return [self._row(layout, rank) for rank, layout in enumerate(self.best, 1)]

    @property
    def front(self) -> list[dict[str, Any]]:
        """The plan, step time and memory of every layout of the Pareto front."""
        return [
            {"plan": asdict(own.plan), "step_time": own.step_time, "memory": own.memory}
            for own in self.pareto
        ]

    @property
    def why(self) -> str:
        """What makes the first faster than the second."""
        return str(import_module(self.view).why(self))

    def scenario(self, layout: Layout | None = None) -> Scenario:
        """The best layout, or another one, as a job to run, compare and explain."""
        space, plan = self.space, (layout or self.best[0]).plan
        return Scenario(
            name=import_module(self.view).plan_text(plan),
            model=space.model,
            topology=space.topology,
            stack=space.stack,
            gpus=space.gpus,
            plan=plan,
        )

    def emitted(self, form: str, layout: Layout | None = None) -> tuple[str, list[str]]:
        """The same as a framework is told of it ("megatron", "torchtitan", "deepspeed"), or as the
        table of a scenario ("toml"); and the choices that it is not told. Raises `InputError`."""
        plan, stack = (layout or self.best[0]).plan, self.space.stack
        if plan.tp_comm_overlap is None and stack.fusion.user_buffers and plan.sequence_parallel:
            plan = replace(plan, tp_comm_overlap=True)  # as the stack has done
        return emitted(form, self.space.model, plan, self.space.named)

    def _row(self, layout: Layout, rank: int) -> dict[str, Any]:
        result = plain(layout.result) if layout.result is not None else {}
        first = self.best[0].result
        if first is not None and layout.result is not None:
            result["slower_than_first"] = slower(first, layout.result)
        own = {"rank": rank, "plan": asdict(layout.plan), "uncontended": layout.uncontended}
        return {**result, **own, "dollars_per_million_tokens": self.dollars(layout)}

    def to_frame(self) -> "pd.DataFrame":
        """The best layouts, one row each."""
        frame: pd.DataFrame = import_module(self.view).frame(self)
        return frame

    def mfu(self, layout: Layout) -> float:
        """Model FLOPs / (step time x GPUs x dense peak)."""
        space = self.space
        peak = space.gpus * space.topology.device.peak_rate(space.precision)
        return model_flops(space.model, space.global_batch) / (layout.step_time * peak)

    def dollars(self, layout: Layout) -> float | None:
        """Rent for a million tokens."""
        tokens = self.space.global_batch * self.space.model.tokens / layout.step_time
        return per_million(self.space.topology.price, self.space.gpus, tokens)


def slower(first: Result, other: Result) -> float:
    """The probability that a layout is slower than the first."""
    return faster(first.step_time, other.step_time, first.interval["apart"])


@whole("layouts")
def search(
    space: Space, *, jobs: int | None = None, best: int = BEST, within: float = WITHIN
) -> SearchResult:
    """The layouts of a space that take at most `within` times as long as the best when nothing
    contends, and the `best` of these played in full. Raises `InputError` where none divides and
    fits."""
    with garbage_left():
        return _search(space, jobs or executors.cores(), best, within)


def _search(space: Space, jobs: int, best: int, within: float) -> SearchResult:
    began = time.perf_counter()
    check_layers(space.model)
    pruned, evaluated = Pruned(), list[Layout]()
    families = _families(space, meshes(space, pruned), began)
    standings = Standings(best=best, within=within)
    with part(_BOUNDED):
        families = _most_promising_first(families, jobs)
    with (
        _stoppable() as searching,
        part(_EVALUATED),
        metered(len(families), unit="family") as more,
    ):
        for wave in _waves(families):
            tasks = [(family, standings) for family in wave]
            for found, left_out in executors.here(_evaluated, tasks, jobs=jobs):
                evaluated += found
                pruned.add(left_out)
                more(1)
            standings = Standings(best=best, within=within).joined(evaluated)
    if searching.stopped and not evaluated:
        raise KeyboardInterrupt
    if not evaluated:
        raise _nothing(space, pruned)
    evaluated.sort(key=_rank)
    count = sum(own.uncontended <= within * evaluated[0].uncontended for own in evaluated)
    pruned.slower += len(evaluated) - count
    evaluated = evaluated[:count]
    searched = time.perf_counter() - began
    ranked = list(evaluated)
    with _stoppable() as playing, part(1.0 - _BOUNDED - _EVALUATED):
        _play(space, ranked, best, jobs)
    if playing.stopped:  # what was not played seems faster than it is
        ranked = sorted((own for own in ranked if own.result), key=_rank) or evaluated
    return SearchResult(
        space=space,
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
    """Work that Ctrl-C ends, with what there is by then."""
    own = _Stoppable()
    try:
        yield own
    except KeyboardInterrupt:
        own.stopped = True


@dataclass(frozen=True, slots=True, eq=False)
class _Family:
    """Meshes whose blocks do the same work; `search` is another moment for every search."""

    space: Space
    sizes: tuple[Plan, ...]
    search: float
    number: int

    def meshes(self) -> list[MeshLayouts]:
        """Its meshes, with what has been worked out of them in this process."""
        families = _worked_out(self.search)
        if self.number not in families:
            known = Known()
            families[self.number] = [MeshLayouts(self.space, own, known) for own in self.sizes]
        return families[self.number]

    def forget(self) -> None:
        """Its meshes are not asked for again."""
        _worked_out(self.search).pop(self.number, None)


@lru_cache(maxsize=1)
def _worked_out(search: float) -> dict[int, list[MeshLayouts]]:
    """What this process knows of the families of a search."""
    return {}


def _families(space: Space, sizes: Iterable[Plan], search: float) -> list[_Family]:
    """Meshes that differ in their stages alone, largest families first."""

    def ranks(plan: Plan) -> tuple[int, ...]:
        return plan.tp, plan.cp, plan.ep, plan.etp, *plan.axes.values()

    families = [tuple(own) for _, own in groupby(sorted(sizes, key=ranks), key=ranks)]
    families.sort(key=len, reverse=True)
    return [_Family(space, own, search, number) for number, own in enumerate(families)]


def _most_promising_first(families: Sequence[_Family], jobs: int) -> list[_Family]:
    """Families in the order of the shortest bounds of their layouts."""
    found = executors.here(_bounded, families, jobs=jobs)
    bounds = dict(counted(found, total=len(families), unit="family"))
    return sorted(families, key=lambda family: (bounds[family.number], family.number))


def _waves(families: Sequence[_Family]) -> Iterator[Sequence[_Family]]:
    """More and more families at once: each wave knows the standings that those before have left,
    whatever the number of processes."""
    first, size = 0, _WAVE
    while first < len(families):
        yield families[first : first + size]
        first, size = first + size, 2 * size


def _bounded(family: _Family) -> tuple[int, float]:
    """A family's number, and the shortest bound (s) of its layouts."""
    with garbage_left():
        bounds = (mesh.passes[0][0] for mesh in family.meshes() if mesh.passes)
        return family.number, min(bounds, default=inf)


def _evaluated(task: tuple[_Family, Standings]) -> tuple[list[Layout], Pruned]:
    """The layouts of some meshes that may be among the best or on the Pareto front. Those with the
    shortest bounds come first, since only what is faster can make another one superfluous."""
    (family, standings), found, pruned = task, list[Layout](), Pruned()
    with garbage_left():
        rows = [(*row, mesh) for mesh in family.meshes() for row in mesh.passes]
        rows.sort(key=lambda row: row[0])
        together: list[_Contender] = []
        for number, (bound, plan, mesh) in enumerate(rows, 1):
            together += _contenders(mesh, plan, bound, standings, pruned)
            if len(together) >= _ROUND or number == len(rows):
                timed = _timed(_written(together, standings, pruned))
                standings, found, together = standings.joined(timed), found + timed, []
        pruned.divisibility += sum(mesh.unsuited for mesh in family.meshes())
        family.forget()
    return found, pruned


class _Contender(NamedTuple):
    """A layout on a mesh, and a lower bound of its step time (s)."""

    mesh: MeshLayouts
    plan: Plan
    bound: float


def _contenders(
    mesh: MeshLayouts, passes: Plan, bound: float, standings: Standings, pruned: Pruned
) -> Iterator[_Contender]:
    """The layouts of some passes that may fit and be worth an evaluation; `pruned` counts the
    others."""
    least = mesh.least_of_passes(passes)
    if least > mesh.capacity or not standings.admit(bound, least):
        count = sum(1 for _ in layouts(mesh.space, passes))
        pruned.memory += count * (least > mesh.capacity)
        pruned.slower += count * (least <= mesh.capacity)
        return
    for layout in layouts(mesh.space, passes):
        least = mesh.least_memory(layout)
        if least > mesh.capacity:
            pruned.memory += 1
        elif standings.admit(bound, least):
            yield _Contender(mesh, layout, bound)
        else:
            pruned.slower += 1


def _written(
    contenders: Iterable[_Contender], standings: Standings, pruned: Pruned
) -> Iterator[tuple[MeshLayouts, Candidate]]:
    """Those that fit and are worth an evaluation by what their programs say."""
    for mesh, plan, bound in contenders:
        candidate = mesh.candidate(plan)
        if candidate is None:
            pruned.memory += 1
        elif standings.admit(max(bound, mesh.stream_bound(candidate)), candidate.memory):
            yield mesh, candidate
        else:
            pruned.slower += 1


def _timed(contenders: Iterable[tuple[MeshLayouts, Candidate]]) -> list[Layout]:
    """Candidates as layouts; those of a mesh are evaluated together."""
    by_mesh: dict[MeshLayouts, list[Candidate]] = {}
    for mesh, candidate in contenders:
        by_mesh.setdefault(mesh, []).append(candidate)
    return [
        Layout(plan=own.job.plan, uncontended=time, memory=own.memory)
        for mesh, candidates in by_mesh.items()
        for own, time in zip(candidates, mesh.evaluator.times(candidates).tolist(), strict=True)
    ]


def _play(space: Space, ranked: list[Layout], best: int, jobs: int) -> None:
    """Play the best layouts in full: as long as contention puts them behind others, these too."""
    while asked := [(space, number, layout) for number, layout in enumerate(ranked[:best])
                    if layout.result is None]:  # fmt: skip
        results = executors.here(_result, asked, jobs=jobs)
        for number, result in counted(results, total=len(asked), unit="layout played"):
            ranked[number] = replace(ranked[number], result=result)
        ranked.sort(key=_rank)


def _result(task: tuple[Space, int, Layout]) -> tuple[int, Result]:
    """A layout's result, without the spans, which need not travel between processes."""
    space, number, layout = task
    result = run(replace(assembled(space, layout.plan), model=space.named))
    return number, replace(result, timeline=replace(result.timeline, spans=[]), memory=())


def assembled(space: Space, plan: Plan) -> Setup:
    """A layout as a scenario would give it."""
    return assemble(
        "plan", model=space.model, stack=space.stack, topology=space.topology, plan=plan
    )


def _rank(layout: Layout) -> tuple[float, float, str]:
    """Fastest first, then smallest, then by name, so that the order never depends on chance."""
    return layout.step_time, layout.memory, str(layout.plan)


def _uncontended(layout: Layout) -> tuple[float, float, str]:
    return layout.uncontended, layout.memory, str(layout.plan)


def _nothing(space: Space, pruned: Pruned) -> InputError:
    if pruned.memory:
        what = f"none of {pruned.memory} layouts fits in memory"
        return FitError("sim plan", what, "use more GPUs or larger ones")
    gpus, batch = space.gpus, space.global_batch
    most = f"in at most {MOST_MICROBATCHES:,} micro-steps"
    what = f"no layout of {gpus} GPUs divides {batch} sequences {most}, and the model's layers"
    return InputError("sim plan", what, "use a global batch with more divisors")
