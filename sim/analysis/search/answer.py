"""The answer to a search for a layout."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from sim.analysis.search import in_words
from sim.analysis.search.choices.named import outside, said
from sim.analysis.search.layouts import Pruned
from sim.analysis.search.simplicity import complications
from sim.analysis.search.space import Space
from sim.analysis.search.standings import Layout
from sim.config.dataclass import dataclass
from sim.config.readable import human_seconds
from sim.hardware.cluster.price import per_million
from sim.interface.frameworks.jobs import emitted
from sim.model.counts import model_flops
from sim.parallel.plan import EffectivePlan
from sim.results.answer import Answer, Inputs, plain
from sim.results.formatting import several
from sim.results.result import Result
from sim.scenario.scenario import Scenario
from sim.uncertainty.order import faster


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult(Answer):
    """The outcome of a search: the best layouts, fastest first, and every layout evaluated.

    `recommended` is the simplest layout that cannot be told apart from the fastest; layouts that
    leave memory free are preferred. `beside` are scenarios of the same model, batch and GPUs that
    are faster than `recommended`. `beyond` is the layout recommended without a framework, if the
    framework's arguments cannot express this layout.

    The search took `search_seconds`; with playing the best layouts it took `wall_seconds`. A
    `stopped` search (Ctrl-C) has not looked at all meshes, or not played all of the best layouts.
    """

    view = "sim.interface.views.search"
    picture = "sim.interface.plots.pareto"
    unwritten = ("space", "recommended", "best", "beside", "beyond", "layouts", "search_seconds")
    derived = (
        "inputs", "best=rows", "recommended=first_row", "faster_scenarios", "evaluated",
        "pareto=front", "why",
    )  # fmt: skip
    frame_rows = "ranking"
    frame_index = ("rank",)

    space: Space
    recommended: Layout
    best: tuple[Layout, ...]
    beside: tuple[Result, ...] = ()
    beyond: Layout | None = None
    layouts: tuple[Layout, ...]
    pruned: Pruned
    search_seconds: float
    wall_seconds: float
    stopped: bool = False

    @property
    def pareto(self) -> tuple[Layout, ...]:
        """The Pareto front of uncontended step time and memory, fastest first."""
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
            notes=(*space.model.notes, *self._beyond()),
        )  # fmt: skip

    @property
    def title(self) -> str:
        space = self.space
        place = f"{several(space.gpus, 'GPU')} of {space.topology.name}"
        return f"Layouts of {space.named} on {place}"

    @property
    def evaluated(self) -> int:
        return len(self.layouts)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The best layouts, each with the keys of a run, its rank and its plan."""
        return [self._row(layout, rank) for rank, layout in enumerate(self.best, 1)]

    @property
    def first_row(self) -> dict[str, Any]:
        """The recommended layout, with the values of `--only` that select it."""
        place = [layout.plan for layout in self.best]
        rank = place.index(self.recommended.plan) + 1 if self.recommended.plan in place else 0
        return {
            "rank": rank,
            "choices": said(self.space, self.recommended.plan),
            "complications": list(complications(self.recommended.plan)),
            "step_time": self.recommended.step_time,
            "memory": self.recommended.memory,
        }

    @property
    def faster_scenarios(self) -> dict[str, float]:
        """Simulated step times (s) of scenarios that are faster than the recommended layout."""
        return {quicker.scenario: quicker.step_time for quicker in self.beside}

    @property
    def front(self) -> list[dict[str, Any]]:
        """The plan, step time and memory of every layout of the Pareto front."""
        return [
            {"plan": asdict(layout.plan), "step_time": layout.step_time, "memory": layout.memory}
            for layout in self.pareto
        ]

    @property
    def why(self) -> str:
        """How the fastest other layout compares with the recommended layout, by cause."""
        return in_words.why(self.recommended.result, self.results)

    @property
    def results(self) -> list[Result]:
        """The best layouts as they were played."""
        return [layout.result for layout in self.best if layout.result is not None]

    def scenario(self, layout: Layout | None = None) -> Scenario:
        """Return the recommended layout, or another, as a job to run, compare and explain."""
        space, plan = self.space, (layout or self.recommended).plan
        return Scenario(
            name=in_words.plan_text(plan),
            model=space.model,
            topology=space.topology,
            stack=space.stack,
            gpus=space.gpus,
            plan=plan,
        )

    def emitted(self, form: str, layout: Layout | None = None) -> tuple[str, list[str]]:
        """Return a layout in a framework's words ("megatron", "torchtitan", "deepspeed") or as the
        table of a scenario ("toml"), and the choices that the form cannot express. Raises
        `InputError`."""
        space, plan = self.space, (layout or self.recommended).plan
        settled = EffectivePlan(space.model, plan, space.stack, space.topology.device)
        if settled.user_buffers and plan.sequence_parallel:
            plan = replace(plan, tp_comm_overlap=True)  # the stack does so by default
        return emitted(form, space.model, plan, space.named, space.topology, space.stack)

    def _beyond(self) -> Iterator[str]:
        """Say which choices no argument of the framework expresses, and the time that they save."""
        if self.beyond is not None:
            plan, time = self.beyond.plan, self.beyond.step_time
            words = (f"{name}={word}" for name, word in outside(self.space, plan).items())
            lost = self.recommended.step_time / time - 1.0
            way = "longer" if lost >= 0.0 else "less"
            yield (
                f"no argument of {self.space.capabilities.name} expresses {', '.join(words)}; "
                f"without this limit the search recommends {in_words.plan_text(plan)}. It takes "
                f"{human_seconds(time)}, simulated; the layout written takes {abs(lost):.1%} {way}"
            )

    def _row(self, layout: Layout, rank: int) -> dict[str, Any]:
        result = plain(layout.result) if layout.result is not None else {}
        first = self.best[0].result
        if first is not None and layout.result is not None:
            result["slower_than_first"] = slower(first, layout.result)
        ranking = {"rank": rank, "plan": asdict(layout.plan), "uncontended": layout.uncontended}
        return {**result, **ranking, "dollars_per_million_tokens": self.dollars(layout)}

    @property
    def ranking(self) -> list[dict[str, Any]]:
        """A row of figures for each of the best layouts."""
        return [
            {
                "rank": rank,
                **said(self.space, layout.plan),
                "expected": layout.result and layout.result.step_time_expected,
                "step_time": layout.step_time,
                "mfu": self.mfu(layout),
                "memory": layout.memory,
                "bubble_fraction": layout.result and layout.result.bubble_fraction,
                "dollars_per_million_tokens": self.dollars(layout),
            }
            for rank, layout in enumerate(self.best, 1)
        ]

    def mfu(self, layout: Layout) -> float:
        """Model FLOPs / (step time x GPUs x dense peak)."""
        space = self.space
        peak = space.gpus * space.topology.device.peak_rate(space.precision)
        return model_flops(space.model, space.global_batch) / (layout.step_time * peak)

    def dollars(self, layout: Layout) -> float | None:
        """Return the rent for a million tokens."""
        tokens = self.space.global_batch * self.space.model.tokens / layout.step_time
        return per_million(self.space.topology.price, self.space.gpus, tokens)


def slower(first: Result, other: Result) -> float:
    """Return the probability that a layout is slower than the first."""
    return faster(first.step_time, other.step_time, first.interval["apart"])


def _uncontended(layout: Layout) -> tuple[float, float, str]:
    return layout.uncontended, layout.memory, str(layout.plan)
