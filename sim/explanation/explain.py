"""`sim.explain`: what limits a step, and what would make it shorter."""

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar

from sim.config.progress import part, whole
from sim.explanation.changes import Change, changes
from sim.explanation.kernels import Roof, roofline, roofs
from sim.explanation.limits import Limits, limits
from sim.explanation.script import Line, Moment, fullest_moment, kernels, lines, longest
from sim.results.answer import Answer, Inputs
from sim.results.result import Result
from sim.scenario.scenario import RecordedScenario, Scenario, load
from sim.scenario.settings import Settings
from sim.scenario.setup import from_scenario
from sim.simulate import run
from sim.simulate_recording import Recorded, set_up

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation(Answer):
    """The gain of each resource if it were faster, kernels against the device's peaks, and the best
    changes of one choice of the plan; of a recorded step instead of these the `lines` of its script
    by the seconds of their kernels, and what they hold of memory at its fullest moment."""

    view = "sim.explanation.text"
    picture = "sim.plots.explanation"
    unwritten = ("result", "limits", "changes", "lines")
    derived: ClassVar[Mapping[str, str]] = {
        "step_time": "step_time",
        "limits": "limited",
        "then": "then",
        "changes": "changed",
        "lines": "timed",
        "inputs": "inputs",
    }

    result: Result
    limits: Limits
    kernels: tuple[Roof, ...]
    changes: tuple[Change, ...]
    lines: tuple[Line, ...] = ()
    fullest: Moment | None = None

    @property
    def step_time(self) -> float:
        return self.result.step_time

    @property
    def inputs(self) -> Inputs:
        return self.result.inputs

    @property
    def fits(self) -> bool:
        return self.result.fits

    @property
    def limited(self) -> list[dict[str, Any]]:
        """Resources, the worst limit first."""
        return [_limit(one.resource, one.halved, one.free) for one in self.limits.limits]

    @property
    def then(self) -> list[dict[str, Any]]:
        """Those that are left once the first is twice as fast."""
        return [_limit(one.resource, one.halved, one.free) for one in self.limits.then]

    @property
    def changed(self) -> list[dict[str, Any]]:
        """Changes of one choice of the plan, the best first."""
        return [
            {"choice": one.choice, "before": one.before, "after": one.after,
             "step_time": one.step_time, "memory": one.result.memory_per_gpu["total"]}
            for one in self.changes
        ]  # fmt: skip

    @property
    def timed(self) -> list[dict[str, Any]]:
        """Lines of a script, those of the longest kernels first."""
        return [{"line": one.line, "seconds": one.seconds} for one in self.lines]

    def to_frame(self) -> "pd.DataFrame":
        """One row a resource: the step (s) were it twice as fast, and at no cost."""
        import pandas as pd

        return pd.DataFrame(self.limited).set_index("resource")


def _limit(resource: str, halved: float, free: float) -> dict[str, Any]:
    return {"resource": resource, "halved": halved, "free": free}


@whole("explaining the step")
def explain(scenario: str | PathLike[str] | Scenario, settings: Settings = ()) -> Explanation:
    """What limits a step of a scenario, or of a recording on a cluster that `settings` name, with
    these applied. Raises `InputError`."""
    job = load(scenario, settings)
    if isinstance(job, RecordedScenario):
        return _of_recording(set_up(job))
    setup = from_scenario(job)
    with part(0.1):
        result = run(setup)
    with part(0.3):
        found = limits(setup)
    found_kernels = tuple(roofline(setup.job))
    with part(0.6):
        others = tuple(changes(setup, result))
    return Explanation(result=result, limits=found, kernels=found_kernels, changes=others)


def _of_recording(setup: Recorded) -> Explanation:
    """What limits a recorded step, whose script has laid it out: nothing of it can be replanned."""
    with part(0.1):
        result = setup.result()
    with part(0.9):
        found = limits(setup)
    own, device = longest(setup), setup.machine.topology.device
    return Explanation(
        result=result,
        limits=found,
        kernels=tuple(roofs(kernels(own), setup.time, device)),
        changes=(),
        lines=tuple(lines(setup, own)),
        fullest=fullest_moment(setup),
    )
