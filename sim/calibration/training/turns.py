"""A calibration cut into turns, so that training steps run between its parts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from pathlib import Path
from statistics import mean, median

from sim.calibration.training.observation import Observation
from sim.hardware.kernels.measurements import Measurement
from sim.model.kernels import Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """Times a share of the quick suite's kernels in each round, every kernel in `passes` of them.

    The suite's shapes are general ones; those of the job that is measured are not among them but
    by chance. Call it on every rank at once.
    """

    device: str
    precision: Precision
    passes: int = 1

    def __call__(self, number: int, rounds: int) -> list[Measurement]:
        from sim.calibration.timing.calls import call
        from sim.calibration.timing.kernels import clock_of
        from sim.calibration.timing.session import calibrate
        from sim.calibration.timing.suite import suite

        asked = [
            case
            for case in suite(self.device, "quick")
            if getattr(case.kernel, "precision", self.precision) == self.precision
        ]
        shares = max(1, rounds // self.passes)
        return calibrate(asked[number % shares :: shares], clock_of(self.device), make=call)


def measurements(seen: Observation) -> list[Measurement]:
    """Every kernel once: the mean over ranks and rounds, at the speed of the median round.

    A round's times count as if the machine had then been as fast as its reference kernels were in
    the median round.
    """
    middle = median(one.reference for one in seen.rounds)
    found: dict[str, list[Measurement]] = {}
    for one in seen.rounds:
        for kernel in one.kernels:
            level = replace(kernel, seconds=kernel.seconds * middle / one.reference)
            found.setdefault(repr(kernel.kernel), []).append(level)
    return [_mean(same) for same in found.values()]


def _mean(same: Sequence[Measurement]) -> Measurement:
    seconds = exp(mean(log(one.seconds) for one in same))
    return replace(same[0], seconds=seconds, spread=max(one.spread for one in same))


def profile(seen: Observation, device: str, path: Path, processes: int) -> None:
    """Write the profile of what was timed between the steps."""
    from sim.calibration.fitting.device import profiled
    from sim.calibration.fitting.profile_file import write
    from sim.calibration.timing.provenance import provenance

    timed: Iterable[Measurement] = measurements(seen)
    found = profiled(
        device,
        list(timed),
        table=path.with_suffix(".csv").name,
        provenance={**provenance("cpu" if device == "cpu" else "cuda", processes=processes)},
    )
    write(found, path)
