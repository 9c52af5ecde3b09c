"""Nine ways of sharing updates on one cluster, side by side (`notebooks/which_sharing.ipynb`)."""

from typing import Any

from sim.comparison.cases import cases, prepared
from sim.comparison.sharing import SharingComparison
from sim.scenario.scenario import load

_SERVER: dict[str, Any] = {"method": "parameter_server", "shards": 2}

WAYS: dict[str, dict[str, Any]] = {
    "ring all-reduce": {"method": "all_reduce"},
    "ring, overlapped": {"method": "all_reduce", "overlap": True},
    "server, synchronous": {**_SERVER, "mode": "bsp"},
    "server, bound 1": {**_SERVER, "mode": "ssp", "bound": 1},
    "server, asynchronous": {**_SERVER, "mode": "async"},
    "gossip, D-PSGD": {"method": "gossip", "algorithm": "d_psgd"},
    "gossip, AD-PSGD": {"method": "gossip", "algorithm": "ad_psgd"},
    "gossip, push-sum": {"method": "gossip", "algorithm": "sgp", "overlap": True},
    "local SGD, 10 steps": {"method": "local_sgd", "period": 10},
}

_LEARNING: dict[str, Any] = {  # a task on which graphs, staleness and drift matter
    "task": "perceptron",
    "size": 16,
    "unlike": 1.0,  # a worker sees its own part of the labels alone
    "rate": 0.05,  # of a gradient by itself; an example that is stable
    "scaling": "linear",
}


def nine_ways(
    workers: int = 8,
    gigabits: float = 10.0,
    sigma: float = 0.3,
    *,
    model: str = "resnet50",
    seconds: float = 10.0,
) -> SharingComparison:
    """All ways on `workers` nodes of 8 V100s with links of so many Gbit/s, up to a loss of 0.5.

    Stragglers are lognormal with `sigma`; each way runs for `seconds` of simulated time.

    >>> outcomes = nine_ways(workers=4, seconds=2.0).outcomes
    >>> len(outcomes), all(outcome.updates > 0 for outcome in outcomes.values())
    (9, True)
    """
    common = {
        "worker": "node",
        "workers": workers,
        "until": f"{seconds} s",
        "straggler": [{"kind": "lognormal", "sigma": sigma}],
        "learning": _LEARNING,
    }
    jobs = {
        way: load(
            "gossip-sgp",
            {
                "name": way,
                "sharing": {**common, **sharing},
                "model": model,
                "network.bandwidth": f"{gigabits} Gb/s",
            },
        )
        for way, sharing in WAYS.items()
    }
    return SharingComparison(cases=cases(prepared(jobs)), target=0.5)
