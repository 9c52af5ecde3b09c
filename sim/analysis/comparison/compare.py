"""`sim.compare`: any jobs of one kind side by side."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from sim.analysis.comparison.cases import Job, cases, prepared
from sim.analysis.comparison.comparison import Comparison
from sim.config.errors import InputError
from sim.config.units import Number
from sim.scenario.settings import Settings, settings_of


def compare(
    *jobs: Job | Mapping[str, Job] | Sequence[Job],
    settings: Settings = (),
    price: str | None = None,
    target: float | None = None,
    tokens: Number | None = None,
    task: Any = None,
    seeds: int = 1,
) -> Comparison:
    """Compare jobs with the first job: a `StepComparison` for synchronous jobs, a
    `SharingComparison` for workers that share updates.

    A job is a text as `sim compare` takes it (`cases`), a scenario or a result. A single list may
    hold all jobs; a mapping also names them. `settings`, and the learning `task`, hold for all
    scenarios. `price` is a GPU's rent such as "2 USD/h" and replaces the topologies' prices.
    `target` is the loss to reach. `tokens` adds the days and dollars in which each synchronous job
    trains on that number of tokens. With several `seeds`, workers that share updates run once with
    each seed, and the answer says how often the best job is first. Raises `InputError`.

    >>> both = compare("megatron-1.7b", ": plan.microbatch=8")
    >>> both.best.name, int(both.to_frame().loc["plan.microbatch=8", "gpus"])
    ('megatron-1.7b', 32)
    """
    alone = len(jobs) == 1 and isinstance(jobs[0], Mapping | list | tuple)
    changes = settings_of(settings, price)
    found = prepared(jobs[0] if alone else jobs, changes, task)  # type: ignore[arg-type]
    first, *others = dict.fromkeys(job.gives for job in found)
    if others:
        raise InputError("compare", "jobs of different kinds", "compare jobs of one kind")
    if not first.comparison:
        raise InputError("compare", "no comparison of such jobs is known", "run each by itself")
    home, _, name = first.comparison.partition(":")
    comparison: type[Comparison] = getattr(import_module(home), name)
    asked = {"target": target, "tokens": tokens}
    comparison.check(asked)
    return comparison(cases=cases(found, seeds), **asked)
