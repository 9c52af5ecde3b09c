"""The search for a layout: every one that divides and fits is paced, the best are clocked.

`sim.search.space` lists what there is, `sim.search.step_estimate` replays the passes of all layouts
of one shape at once, and the clock has the last word on the best few, contention included.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from sim.config.errors import InputError
from sim.parallel.pipeline import bubble
from sim.parallel.plan import Plan
from sim.reliability.cost import TrainingCost, cost_of
from sim.results.result import Result
from sim.search.durations import Spans
from sim.search.space import Candidate, Pruned, Space, assembled, candidates
from sim.search.step_estimate import Tempo, step_times
from sim.simulate import garbage_left, run
from sim.sweep import executors as crew

BEST = 20
CLOCKED = 6  # layouts that the clock confirms


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A layout that was evaluated: its step time (s) by replay, the clock's result if confirmed.

    `memory` are the bytes that the fullest rank allocates.
    """

    plan: Plan
    paced: float
    memory: float
    result: Result | None = None

    @property
    def step_time(self) -> float:
        return self.result.step_time if self.result else self.paced

    @property
    def bubble(self) -> float:
        """By the clock; else (p-1)/(v m + p-1), that of equal stages (`sim.parallel.pipeline`)."""
        if self.result is not None:
            return self.result.bubble_fraction
        plan = self.plan
        return bubble(plan.pp, plan.microbatches, plan.interleave if plan.interleaved else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The outcome of a search: the best layouts, fastest first, and every layout evaluated."""

    space: Space
    best: tuple[Layout, ...]
    layouts: tuple[Layout, ...]
    pruned: Pruned
    wall_seconds: float

    @property
    def pareto(self) -> tuple[Layout, ...]:
        """Layouts than which none is both faster (by replay) and smaller, fastest first."""
        confirmed = {str(one.plan): one for one in self.best}
        front: list[Layout] = []
        for one in sorted(self.layouts, key=_paced):
            if not front or one.memory < front[-1].memory:
                front.append(confirmed.get(str(one.plan), one))
        return tuple(front)

    def mfu(self, layout: Layout) -> float:
        """Model FLOPs / (step time x GPUs x dense peak)."""
        space = self.space
        peak = space.topology.gpus * space.topology.device.peak_rate(space.precision)
        return space.model.model_flops(space.global_batch) / (layout.step_time * peak)

    def cost(self, layout: Layout) -> TrainingCost:
        """What a billion tokens cost."""
        tokens = self.space.global_batch * self.space.model.seq
        return cost_of(self.space.topology, layout.step_time, tokens, 1e9)


def search(space: Space, *, jobs: int | None = None, best: int = BEST) -> Found:
    """Evaluate every layout of a space; raises `InputError` where none divides and fits."""
    with garbage_left():
        return _search(space, jobs or crew.cores(), best)


def _search(space: Space, jobs: int, best: int) -> Found:
    began = time.perf_counter()
    evaluated: list[Layout] = []
    pruned = Pruned()
    for layouts, counted in crew.here(_evaluated, _parts(space, jobs), jobs=jobs):
        evaluated += layouts
        pruned.divisibility += counted.divisibility
        pruned.memory += counted.memory
    if not evaluated:
        raise InputError("sim plan", *_nothing(space, pruned))
    evaluated.sort(key=_rank)
    known = _confirmed(space, evaluated[: max(best, CLOCKED)], jobs)
    return Found(
        space=space,
        best=tuple(known[:best]),
        layouts=tuple(evaluated),
        pruned=pruned,
        wall_seconds=time.perf_counter() - began,
    )


def _confirmed(space: Space, first: list[Layout], jobs: int) -> list[Layout]:
    """The first few by the clock, and whoever comes to stand among them then, a few times over."""
    for _ in range(3):
        first = sorted(first, key=_rank)
        asked = [(space, n, one) for n, one in enumerate(first[:CLOCKED]) if one.result is None]
        clocked = dict(crew.here(_clocked, asked, jobs=jobs))
        first = [clocked.get(number, one) for number, one in enumerate(first)]
    return sorted(first, key=_rank)


def _rank(layout: Layout) -> tuple[float, float, str]:
    """Fastest first, then smallest, then by name, so that the order never depends on chance."""
    return layout.step_time, layout.memory, str(layout.plan)


def _paced(layout: Layout) -> tuple[float, float, str]:
    return layout.paced, layout.memory, str(layout.plan)


def _nothing(space: Space, pruned: Pruned) -> tuple[str, str]:
    if not pruned.memory:
        gpus, batch = space.topology.gpus, space.global_batch
        what = f"no layout of {gpus} GPUs divides {batch} sequences and the model's layers"
        return what, "use a global batch with more divisors"
    return f"none of {pruned.memory} layouts fits in memory", "use more GPUs or larger ones"


def _parts(space: Space, jobs: int) -> list[Space]:
    """The space in pieces for several processes, a few each, since pieces differ in size."""
    count = 1 if jobs == 1 else 4 * jobs
    return [replace(space, share=(index, count)) for index in range(count)]


def _evaluated(space: Space) -> tuple[list[Layout], Pruned]:
    pruned = Pruned()
    with garbage_left():
        return list(evaluate(candidates(space, pruned))), pruned


def evaluate(found: Iterable[Candidate]) -> Iterator[Layout]:
    """The step time of every layout, those of one shape together."""
    spans = Spans()
    groups: dict[tuple[object, ...], list[tuple[Candidate, Tempo]]] = defaultdict(list)
    for one in found:
        tempo = Tempo(one.setup, spans)
        groups[tempo.shape].append((one, tempo))
    for group in groups.values():
        for (one, _), seconds in zip(group, step_times([t for _, t in group]), strict=True):
            yield Layout(plan=one.plan, paced=seconds, memory=one.memory.total)


def _clocked(task: tuple[Space, int, Layout]) -> tuple[int, Layout]:
    """A layout with the clock's result."""
    space, number, layout = task
    result = run(assembled(space, layout.plan))
    return number, replace(layout, result=_light(result))


def _light(result: Result) -> Result:
    """Without the spans, which need not travel between processes."""
    return replace(result, timeline=replace(result.timeline, spans=[]))


def why(found: Found) -> str:
    """Why the runner-up lost: what it spends more on, and what less, than the best."""
    if len(found.best) < 2 or found.best[1].result is None or found.best[0].result is None:
        return "there is no other layout to compare with"
    best, second = found.best[0].result, found.best[1].result
    causes = sorted({*best.breakdown, *second.breakdown})
    more = {c: second.breakdown.get(c, 0.0) - best.breakdown.get(c, 0.0) for c in causes}
    ahead = sorted(((s, c) for c, s in more.items() if abs(s) > 1e-4 * best.step_time), key=_size)
    words = [f"{s:+.3f} s {c}" for s, c in ahead[:4]] or ["the same in every cause"]
    lost = second.step_time - best.step_time
    return f"the runner-up takes {lost:.3f} s ({lost / best.step_time:.2%}) longer: " + ", ".join(
        words
    )


def _size(one: tuple[float, str]) -> float:
    return -abs(one[0])


def to_dict(found: Found) -> dict[str, Any]:
    """The keys of `--json`."""
    return {
        "best": [_row(found, layout, rank) for rank, layout in enumerate(found.best, 1)],
        "evaluated": len(found.layouts),
        "pruned": asdict(found.pruned),
        "pareto": [
            {"plan": _plan(one.plan), "step_time": one.step_time, "memory": one.memory}
            for one in found.pareto
        ],
        "why": why(found),
        "wall_seconds": found.wall_seconds,
    }


def _row(found: Found, layout: Layout, rank: int) -> dict[str, Any]:
    """A layout with the keys of a run, those that only the clock knows left out without it."""
    space, step = found.space, layout.step_time
    tokens = space.global_batch * space.model.seq / step
    row: dict[str, Any] = {
        "rank": rank,
        "plan": _plan(layout.plan),
        "step_time": step,
        "samples_per_second": space.global_batch / step,
        "tokens_per_second": tokens,
        "tokens_per_second_per_gpu": tokens / space.topology.gpus,
        "mfu": found.mfu(layout),
        "bubble_fraction": layout.bubble,
        "memory_per_gpu": {"total": layout.memory},
        "fits": True,
        "ranks": space.topology.gpus,
    }
    if layout.result is not None:
        row |= layout.result.to_dict()
    row |= {"confirmed": layout.result is not None, "replayed": layout.paced}
    return row | {"dollars_per_billion_tokens": found.cost(layout).dollars}


def _plan(plan: Plan) -> dict[str, Any]:
    return asdict(plan)
