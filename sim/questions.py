"""Questions about scenarios and setups of all kinds, beyond their answers (`sim.kind`)."""

import os
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from sim.config import catalog
from sim.config.errors import InputError
from sim.engine.effort import effort as effort_of
from sim.kind import Setup, answer, folder_of, folders, home_of, module_of, ours
from sim.model.kernels import Kernel
from sim.results.answer import Figures, JobAnswer
from sim.scenario.scenario import BaseScenario, Scenario
from sim.scenario.setup import PlanSetup

if TYPE_CHECKING:
    from sim.hardware.cluster.network import Link
    from sim.results.by_line import ByLine, Suggestion
    from sim.results.likely import Pace


Floats = NDArray[np.float64]


class Speeds(Protocol):
    """A step time as a function of factors on the durations of its `kinds` of resources."""

    @property
    def kinds(self) -> tuple[str, ...]: ...

    def times(self, factors: Floats) -> Floats:
        """Return the step times (s) [columns] if the kinds of resources take `factors`
        [kinds, columns] times as long."""
        ...


def figures(setups: Sequence[Setup]) -> Iterator[Figures | InputError]:
    """Yield the figures of each of several setups of one kind, or the setup's `InputError`."""
    ask = _found(setups[0], "together") if len(setups) > 1 else None
    found: Mapping[int, Figures] = {} if ask is None else ask(setups)
    for number, setup in enumerate(setups):
        if number in found:
            yield found[number]
            continue
        try:
            played = answer(setup)
        except InputError as error:
            yield error
        else:
            yield Figures(played.columns, played.misfit, played.wall_seconds)


def pace(setup: Setup) -> "Pace":
    """Return how fast a setup trains, and where. Raises `InputError` if its kind has no pace."""
    return cast("Pace", _ability(setup, "pace")(setup))


def refuse_without(ability: str, scenario: BaseScenario) -> None:
    """Raise `InputError` for a scenario of a kind without an ability, such as "pace"."""
    _ability(scenario, ability)


def traffic(setup: Setup) -> "tuple[float, dict[Link, float]]":
    """Return the mean seconds of a unit of work, and the bytes that the unit puts on each link. It
    serves setups whose work is not a program. Raises `InputError` if the kind has no `traffic`."""
    return cast("tuple[float, dict[Link, float]]", _ability(setup, "traffic")(setup))


def speeds(setup: Setup, *, many: bool = False) -> Speeds:
    """Return a setup's step time as a function of the speeds of resources. `many` compiles the
    step, which saves time for many columns of factors. Raises `InputError` for a setup without a
    step, or with a step that cannot be compiled."""
    return cast(Speeds, _ability(setup, "speeds")(setup, many=many))


def kernels(setup: Setup) -> "Sequence[Sequence[KernelCalls]]":
    """Return the kernels of each stage, with their seconds and their number of calls in a step.
    Raises `InputError` for a setup without a step."""
    found: Sequence[Sequence[KernelCalls]] = _ability(setup, "kernels")(setup)
    return found


KernelCalls = tuple[Kernel, float, int]  # a kernel, its seconds, its calls in a step


def by_line(setup: Setup) -> "ByLine | None":
    """Return seconds and memory by line of a setup's script; None if there is no script."""
    ask = _found(setup, "by_line")
    return None if ask is None else cast("ByLine", ask(setup))


def advice(setup: Setup) -> "list[Suggestion]":
    """Return changes of a setup's script that may make its step shorter. Raises `InputError` for a
    setup without a script."""
    return list(_ability(setup, "advice")(setup))


def moves(setup: Setup) -> "list[Suggestion]":
    """Worlds, batches and shardings to which a recorded step can be moved. Raises `InputError` for
    a setup without a recording."""
    return list(_ability(setup, "moves")(setup))


def seeds(scenario: BaseScenario) -> Iterator[BaseScenario] | None:
    """Return endless copies of a scenario with its seed, the next seed and so on; None if its
    simulation draws no random numbers."""
    ask = _found(scenario, "seeded")
    if ask is None or ask(scenario, 0) is None:
        return None
    return (ask(scenario, number) for number in count())


def effort(setup: Setup) -> float:
    """Return how long a setup takes to simulate (s of one core), to an order of magnitude."""
    known: float | None = getattr(setup, "effort", None)
    return effort_of(setup.program, setup.machine) if known is None else known


def adopted(path: os.PathLike[str] | str) -> dict[str, Any]:
    """Return the settings with which scenarios use the classes that a user's Python file adds.
    Raises `InputError` for a file that adds nothing."""
    (adopt, *_) = (folder.adopt for folder in ours() if hasattr(folder, "adopt"))
    return cast("dict[str, Any]", adopt(Path(path)))


def answer_of(scenario: BaseScenario) -> type[JobAnswer]:
    """Return the class of a scenario's answers."""
    return cast("type[JobAnswer]", module_of(scenario).ANSWER)


def planned(setup: Setup) -> PlanSetup:
    """Return the setup of a job that a plan lays out. Raises `InputError` for other setups."""
    if setup.job is None:
        raise InputError(setup.name, *module_of(setup).LACKS)
    return cast(PlanSetup, setup)


def _ability(thing: BaseScenario | Setup, name: str) -> Any:
    if (found := _found(thing, name)) is None:
        raise InputError(thing.name, *module_of(thing).LACKS)
    return found


def _found(thing: BaseScenario | Setup, name: str) -> Any:
    """Return a function of a kind, from its module or from the module that its `QUESTIONS` name."""
    module = module_of(thing)
    further = getattr(module, "QUESTIONS", None)
    if further and not hasattr(module, name):
        module = import_module(further)
    return getattr(module, name, None)


def answers() -> tuple[type[JobAnswer], ...]:
    """Return the classes of answers of all kinds."""
    homes = [Scenario.kind, *(home_of(folder) for folder in folders())]
    return tuple(import_module(home).ANSWER for home in homes)


def question(name: str) -> str:
    """Return the question that a scenario asks: the first line of its kind's folder. Empty for a
    job of a plan and for a file that cannot be read.

    >>> question("ps-async"), question("gpt3-175b-megatron")
    ('How do workers that do not wait for one another train?', '')
    """
    try:
        folder = folder_of(catalog.document("scenarios", catalog.find("scenarios", name)))
    except InputError:
        return ""
    return (folder.__doc__ or "").partition("\n")[0] if folder else ""
