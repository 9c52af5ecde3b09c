"""How stale is too stale, and how many to wait for: parameter servers with stragglers."""

from dataclasses import replace
from typing import Any

from sim.config.readable import human_seconds

from .study import Study, runs

BOUND, BACKUP = "stale synchronous", "backup workers"
_SERVER: dict[str, Any] = {"method": "parameter_server", "shards": 2}


def bounds(gigabits: float = 1.0, rate: float = 0.1, *, seeds: int = 3) -> Study:
    """Staleness bounds of 0 to 32 steps with cached reads (Ho et al. 2013): less
    time in the network, staler weights."""
    plans = {
        (BOUND, str(bound)): {"mode": "ssp", "bound": bound, "cached": True}
        for bound in (0, 1, 2, 4, 8, 16, 32)
    }
    study = Study(
        title=f"How stale may weights be, on {gigabits:g} Gb/s (Ho et al. 2013)",
        axis="bound (steps)",
        target=0.4,
        outcomes=runs(
            plans,
            seeds=range(seeds),
            until="10 s",
            network={"bandwidth": f"{gigabits} Gb/s"},
            straggler=[{"kind": "lognormal", "sigma": 0.3}],
            learning={"task": "perceptron", "size": 16, "rate": rate},
            **_SERVER,
        ),
    )
    best = study.fastest(BOUND)
    late = study.outcomes[BOUND, best][0].staleness["mean"]
    said = (
        f"On {gigabits:g} Gb/s at a rate of {rate:g} a bound of {best} steps is the first at a "
        f"loss of {study.target:g}, with updates {late:.0f} others late in the mean; "
        f"{_end(study, BOUND, '0')} with a bound of 0, {_end(study, BOUND, '32')} with one of 32."
    )
    return replace(study, conclusion=said)


def backup_workers(alpha: float = 2.0, workers: int = 16, *, seeds: int = 3) -> Study:
    """Gradients of the last b workers are not waited for (Chen et al. 2016): shorter steps that
    average fewer. Steps follow Pareto's law."""
    plans = {(BACKUP, str(b)): {"mode": "backup", "backup": b} for b in _backups(workers)}
    study = Study(
        title=f"How many of {workers} not to wait for, Pareto {alpha:g} (Chen et al. 2016)",
        axis="backup workers",
        target=0.4,
        outcomes=runs(
            plans,
            seeds=range(seeds),
            workers=workers,
            until="16 s",
            network={"bandwidth": "10 Gb/s"},
            straggler=[{"kind": "pareto", "alpha": alpha}],
            learning={"task": "perceptron", "size": 16, "rate": 0.05, "scaling": "linear"},
            **_SERVER,
        ),
    )
    best = study.fastest(BACKUP)
    said = (
        f"With {best} of {workers} workers in reserve a loss of {study.target:g} is reached first, "
        f"{_end(study, BACKUP, best)}; {_end(study, BACKUP, '0')} when all are waited for."
    )
    return replace(study, conclusion=said)


def _backups(workers: int) -> list[int]:
    return sorted({0, *(round(workers * share) for share in (1 / 16, 1 / 8, 1 / 4, 3 / 8, 5 / 8))})


def _end(study: Study, way: str, setting: str) -> str:
    seconds = study.time(way, setting)
    return f"after {human_seconds(seconds)}" if seconds < float("inf") else "never"
