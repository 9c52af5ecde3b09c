"""The expected time of a measured step, its bounds, and the measured runs that support both."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import expm1, inf
from typing import Any

from sim.config.dataclass import dataclass
from sim.config.readable import human_seconds
from sim.hardware.cluster.topology import Topology
from sim.model.counts import parameters
from sim.parallel.job import Job
from sim.parallel.memory import state_of
from sim.results.answer import Inputs
from sim.results.formatting import percent
from sim.results.result import Result

_RATIOS = ("low", "expected", "high")


@dataclass(frozen=True, slots=True, kw_only=True)
class Likely:
    """The ratio of a measured time to the simulated time: its `expected` value, and bounds that
    contain it with probability `level`. `basis` names the measured runs behind these numbers.
    `apart` is the scale of errors that layouts of a job do not share, if known."""

    level: float
    low: float
    expected: float
    high: float
    basis: str
    apart: float | None = None

    def beside(self, sure: float) -> "Likely":
        """Return the ratios after adding time that is certain: `sure` times the simulated time."""
        ratios = {key: (getattr(self, key) + sure) / (1.0 + sure) for key in _RATIOS}
        return replace(self, **ratios)

    def of(self, simulated: float) -> dict[str, float]:
        """Return bounds and expectation of a quantity in proportion to time: seconds, dollars."""
        return {key: getattr(self, key) * simulated for key in _RATIOS}


def likely(result: Result) -> Likely:
    """Return the expected measured time of a step like this."""
    bounds = result.step_time_low, result.step_time_expected, result.step_time_high
    return of_bounds(result.step_time, bounds, result.interval)


def of_bounds(simulated: float, bounds: Sequence[float], law: Mapping[str, Any]) -> Likely:
    """The ratios of the least, the expected and the largest measured time to a simulated one."""
    ratios = {key: bound / simulated for key, bound in zip(_RATIOS, bounds, strict=True)}
    return Likely(level=law["level"], **ratios, basis=law["basis"], apart=law.get("apart"))


def bounds(result: Result) -> str:
    """Return the interval of a step, such as "(17.6 to 19.0 s, 90 %)"."""
    return interval((result.step_time_low, result.step_time_high), result.interval["level"])


def why(law: Mapping[str, Any]) -> str:
    """Why the expected step differs from the simulated step, by the law of its errors.

    "5 measured runs of torch on H100 were 3.0 % slower than simulated"
    """
    if law["seen"] is None:
        return f"by {law['basis']} a measured step is {compared(law['bias'], 'longer', 'shorter')}"
    verb = "was" if law["basis"].startswith("1 ") else "were"
    return f"{law['basis']} {verb} {compared(law['seen'], 'slower', 'faster')}"


def interval(
    bounds: Sequence[float], level: float, human: Callable[[float], str] = human_seconds
) -> str:
    """Return bounds and their level as text; a unit that both bounds share is written once.

    >>> interval((1.76, 1.94), 0.9), interval((0.9, 1.1), 0.9)
    ('(1.76 to 1.94 s, 90 %)', '(900 ms to 1.10 s, 90 %)')
    """
    low, high = map(human, bounds)
    unit = high.partition(" ")[2]
    shown = low.removesuffix(f" {unit}") if unit else low
    return f"({shown} to {high}, {100 * level:.0f} %)"


def compared(log_ratio: float, longer: str, shorter: str) -> str:
    """Return the logarithm of a ratio to the simulated time, as a percentage in words.

    >>> compared(0.0953, "slower", "faster"), compared(0.0, "longer", "shorter")
    ('10.0 % slower than simulated', 'as simulated')
    """
    share = expm1(log_ratio)
    if abs(share) < 5e-4:
        return "as simulated"
    return f"{percent(abs(share))} {longer if share > 0 else shorter} than simulated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """A step, or a mean update of workers that share updates: its `seconds` and `tokens` (samples
    of a model without sequences). `size` is the size of a checkpoint (bytes); `replicas` counts
    ranks with data of their own; `sure` holds the correction by measured runs, if any. If `fits` is
    false, the job does not fit into memory. `watts` is a device's mean power; None is unknown.

    `alone` workers fail independently. A fault on any of `gpus_of_one` GPUs stops a worker: its own
    GPUs and its servers' GPUs. The worker then repeats `at_risk` seconds (mean: half a round).
    """

    topology: Topology
    seconds: float
    tokens: float
    size: float
    replicas: int
    inputs: Inputs
    fits: bool | None
    sure: Likely | None = None
    watts: float | None = None
    alone: int = 1
    gpus_of_one: int = 0
    at_risk: float = inf


def checkpoint_bytes(job: Job) -> float:
    """Bytes over all ranks: weights in working precision, their fp32 copy, optimizer moments."""
    chunks = tuple(chunk for of_stage in job.chunks for chunk in of_stage)
    groups = job.parameters(chunks)
    kept = sum(n * state_of(job, group).moments for group, n in groups.items())
    moments = kept / sum(groups.values())
    width = job.stack.weight_bytes(job.plan.precision)
    master = 4 if width < 4 and job.stack.master_weights else 0
    return parameters(job.model) * float(width + master + moments)
