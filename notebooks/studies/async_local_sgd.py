"""Asynchronous against synchronous local SGD: unlike workers, and how often to average."""

from dataclasses import replace
from typing import Any

from sim.config.readable import human_seconds

from .study import Study, runs

_NESTEROV = {"outer_rate": 0.7, "outer_momentum": 0.9}  # Liu et al. 2024, as Douillard et al. 2023
SYNCHRONOUS, PLAIN, NAIVE = "synchronous DiLoCo", "without momentum", "naive Nesterov"
DELAYED, DYNAMIC = "delayed Nesterov", "delayed, dynamic updates"
_LINEAR: dict[str, Any] = {"task": "perceptron", "size": 16, "rate": 0.05, "scaling": "linear"}


def unlike_workers(
    slowdown: float = 2.0, period: int = 20, *, seconds: float = 60.0, seeds: int = 3
) -> Study:
    """Four workers of which two are slower (Liu et al. 2024, arXiv 2401.09135): their baselines and
    their method, with Adam inside and H = `period`."""
    plain = {"method": "async_local_sgd", "period": period, "outer_rate": 0.7}
    delayed = {**plain, **_NESTEROV, "delay": 4}
    ways: dict[str, dict[str, Any]] = {
        SYNCHRONOUS: {"method": "local_sgd", "period": period, "nesterov": True, **_NESTEROV},
        PLAIN: plain,
        NAIVE: {**plain, **_NESTEROV},
        DELAYED: delayed,
        DYNAMIC: {**delayed, "dynamic": True},
    }
    study = Study(
        title=f"Two of four workers {slowdown:g} times as slow (Liu et al. 2024)",
        axis="H",
        target=0.2,
        outcomes=runs(
            {(way, str(period)): plan for way, plan in ways.items()},
            seeds=range(seeds),
            workers=4,
            until=f"{seconds} s",
            network={"bandwidth": "1 Gb/s"},
            group=[{"ranks": [2, 3], "slowdown": slowdown}],
            learning={
                "task": "perceptron", "size": 16, "unlike": 0.5, "optimizer": "adam", "rate": 0.003,
            },
        ),
    )  # fmt: skip
    after = {way: study.loss(way, str(period), seconds=study.end) for way in ways}
    order = sorted(after, key=lambda way: after[way])
    said = ", ".join(f"{way} {after[way]:.2g}" for way in order)
    said = f"After {seconds:g} s with two of four workers {slowdown:g} times as slow: {said}."
    return replace(study, conclusion=said)


def how_often(megabits: float = 200.0, unlike: float = 1.0, *, seeds: int = 2) -> Study:
    """Local SGD with H = 1 to 32: fewer messages, more drift (Stich 2019; Wang et al. 2020)."""
    periods = (1, 2, 4, 8, 16, 32)
    study = Study(
        title=f"How often to average, on {megabits:g} Mb/s (Stich 2019, SlowMo)",
        axis="H",
        target=0.35,
        outcomes=runs(
            {("local SGD", str(h)): {"method": "local_sgd", "period": h} for h in periods},
            seeds=range(seeds),
            steps=192,
            network={"bandwidth": f"{megabits} Mb/s"},
            learning={**_LINEAR, "unlike": unlike},
        ),
    )
    best = study.fastest("local SGD")
    said = (
        f"On {megabits:g} Mb/s an average every {best} steps is the first at a loss of "
        f"{study.target:g}, after {human_seconds(study.time('local SGD', best))}; one every step "
        f"takes {human_seconds(study.time('local SGD', '1'))}."
    )
    return replace(study, conclusion=said)
