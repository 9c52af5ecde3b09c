"""`sim.run`: a single play of a scenario, or many drawn plays."""

import os
from typing import TYPE_CHECKING, Any, overload

from sim import kind
from sim.config.errors import InputError
from sim.engine.play import Engine
from sim.results.result import Result
from sim.scenario.scenario import BaseScenario
from sim.scenario.settings import Settings, settings_of

if TYPE_CHECKING:
    from sim.results.answer import Answer

Given = BaseScenario | str | os.PathLike[str]


@overload
def run(
    scenario: Given, settings: Settings = ..., *, samples: None = ..., price: str | None = ...,
    unfold: bool = ..., engine: Engine = ..., task: Any = ...,
) -> Result: ...  # fmt: skip
@overload
def run(
    scenario: Given, settings: Settings = ..., *, samples: int | None, price: str | None = ...,
    unfold: bool = ..., engine: Engine = ..., task: Any = ...,
) -> "Answer": ...  # fmt: skip
def run(
    scenario: Given,
    settings: Settings = (),
    *,
    samples: int | None = None,
    price: str | None = None,
    unfold: bool = False,
    engine: Engine = "auto",
    task: Any = None,
) -> "Answer":
    """Predict one training step of a scenario with `settings` applied. `price` is a GPU's rent such
    as "2 USD/h" and replaces the topology's. `unfold` and `engine` say how the step is played
    (`sim.simulate.answer`). Raises `InputError`.

    For workers that share updates, predict a whole run (`Outcome`). The run trains the learning
    task that the scenario names, or `task`: an object, or a Python file that makes a task. With
    `samples`, draw that number of steps with random stragglers, or runs with that number of seeds.

    >>> run("gpt2-one-gpu", {"plan.microbatch": 2}).fits, run("gpt2-one-gpu", samples=3).samples
    (True, 3)
    """
    job = kind.load(scenario, settings_of(settings, price))
    if samples is None:
        return kind.answer(kind.set_up(job, task=task), engine=engine, unfold=unfold)
    for chosen, name in ((unfold, "--unfold"), (engine == "clock", "--engine clock")):
        if chosen:
            fault = "plays a single step or run, but --samples plays many"
            raise InputError(name, fault, "leave out one of the two")
    from sim.analysis.samples.samples import drawn

    return drawn(job, samples, task=task)
