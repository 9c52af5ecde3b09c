"""Which graph: where a network is slow, and where one worker is."""

from dataclasses import replace
from typing import Any

from sim.config.readable import human_seconds

from .study import Study, runs

RING, REDUCE, SERVER, PAIRS = "D-PSGD, ring", "all-reduce", "server", "AD-PSGD"
HEALTHY, STRAGGLER = "none", "one"
_LEARNING: dict[str, Any] = {
    "task": "perceptron", "size": 16, "rate": 0.05, "scaling": "linear", "unlike": 0.5,
}  # fmt: skip
_LAYERS = {"forward": "30 ms", "backward": "70 ms", "parameters": 1e6, "layers": 4}
_BESIDE: dict[str, Any] = {"overlap": True, "bucket": "1 MB", "times": _LAYERS}


def networks(workers: int = 16, latency: float = 1.0, *, seeds: int = 2) -> Study:
    """Decentralised against centralised on slow and fast networks (Lian et al. 2017, arXiv
    1705.09056): all beside the backward pass, messages of `latency` ms."""
    ways: dict[str, dict[str, Any]] = {
        SERVER: {"method": "parameter_server", **_BESIDE},
        REDUCE: {"method": "all_reduce", **_BESIDE},
        RING: {"method": "gossip", "overlap": True},
    }
    plans = {
        (way, f"{gigabits:g}"): {
            **plan,
            "network": {"bandwidth": f"{gigabits} Gb/s", "latency": f"{latency} ms"},
        }
        for way, plan in ways.items()
        for gigabits in (0.1, 1.0, 10.0)
    }
    study = Study(
        title=f"{workers} workers, slow network or fast (Lian et al. 2017)",
        axis="Gb/s",
        target=0.4,
        outcomes=runs(plans, seeds=range(seeds), workers=workers, steps=32, learning=_LEARNING),
    )
    slow, fast = study.settings[0], study.settings[-1]
    said = "; ".join(
        f"on {setting} Gb/s {study.first(setting)} is the first at a loss of {study.target:g} "
        f"({RING}: {human_seconds(study.time(RING, setting))}, {REDUCE}: "
        f"{human_seconds(study.time(REDUCE, setting))})"
        for setting in (slow, fast)
    )
    return replace(study, conclusion=f"{said[0].upper()}{said[1:]}.")


def one_straggler(factor: float = 10.0, workers: int = 16, *, seeds: int = 2) -> Study:
    """One worker `factor` times as slow (Lian et al. 2018, arXiv 1710.06952): who
    waits for it?"""
    ways: dict[str, dict[str, Any]] = {
        REDUCE: {"method": "all_reduce"},
        RING: {"method": "gossip"},
        PAIRS: {"method": "gossip", "algorithm": "ad_psgd"},
    }
    slow = {STRAGGLER: [{"kind": "constant", "factor": factor, "ranks": [3]}], HEALTHY: []}
    plans = {
        (way, setting): {**plan, "straggler": slow[setting]}
        for way, plan in ways.items()
        for setting in (HEALTHY, STRAGGLER)
    }
    study = Study(
        title=f"One of {workers} workers {factor:g} times as slow (Lian et al. 2018)",
        axis="stragglers",
        target=0.45,
        outcomes=runs(
            plans,
            seeds=range(seeds),
            workers=workers,
            until="10 s",
            network={"bandwidth": "10 Gb/s", "latency": "1 ms"},
            learning=_LEARNING,
        ),
    )
    lost = {way: 1.0 - study.outcomes[way, STRAGGLER][0].samples_per_second
            / study.outcomes[way, HEALTHY][0].samples_per_second for way in study.ways}  # fmt: skip
    said = ", ".join(f"{way} loses {share:.0%}" for way, share in lost.items())
    end = f"of its samples a second to one worker {factor:g} times as slow."
    return replace(study, conclusion=f"{said} {end}")
