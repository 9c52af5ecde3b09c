"""`sim.run`: one step of a scenario, or many with stragglers."""

import os
from typing import TYPE_CHECKING, overload

from sim.config.errors import InputError
from sim.engine.play import Engine
from sim.results.result import Result
from sim.scenario.scenario import Scenario, SharingScenario, load
from sim.scenario.settings import Settings, settings_of
from sim.sharing.learning.own_task import Task, refuse_task
from sim.simulate import simulate

if TYPE_CHECKING:
    from sim.samples.answer import Samples
    from sim.samples.sharing import SharingSamples

Given = Scenario | str | os.PathLike[str]


@overload
def run(
    scenario: Given, settings: Settings = ..., *, samples: None = ..., price: str | None = ...,
    unfold: bool = ..., engine: Engine = ..., task: Task | None = ...,
) -> Result: ...  # fmt: skip
@overload
def run(
    scenario: Given, settings: Settings = ..., *, samples: int | None, price: str | None = ...,
    unfold: bool = ..., engine: Engine = ..., task: Task | None = ...,
) -> "Result | Samples | SharingSamples": ...  # fmt: skip
def run(
    scenario: Given,
    settings: Settings = (),
    *,
    samples: int | None = None,
    price: str | None = None,
    unfold: bool = False,
    engine: Engine = "auto",
    task: Task | None = None,
) -> "Result | Samples | SharingSamples":
    """Predict one training step of a scenario with `settings` applied, at a GPU's `price` such as
    "2 USD/h" instead of the topology's (`sim.simulate`); with `samples` so many steps with
    stragglers, or runs of so many seeds of workers that share updates. Raises `InputError`.

    >>> run("gpt2-one-gpu", {"plan.microbatch": 2}).fits, run("gpt2-one-gpu", samples=3).samples
    (True, 3)
    """
    job = load(scenario, settings_of(settings, price))
    if samples is None:
        return simulate(job, unfold=unfold, engine=engine, task=task)
    for chosen, name in ((unfold, "--unfold"), (engine == "clock", "--engine clock")):
        if chosen:
            what = "shows one step or run, not --samples"
            raise InputError(name, what, "leave out one of the two")
    from sim.samples import samples as steps
    from sim.samples import sharing

    if isinstance(job, SharingScenario):
        return sharing.samples(job, samples, task=task)
    refuse_task(job.name, task)
    return steps.samples(job, samples)
