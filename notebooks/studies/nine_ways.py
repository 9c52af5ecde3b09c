"""Ring all-reduce, parameter server, gossip or local SGD: which is fastest, and which learns first?

    python -m notebooks.studies.nine_ways [--workers 16] [--gigabits 10] [--sigma 0.3]
                                          [--model resnet50] [--picture nine_ways.png]

The same model on the same nodes under the same lognormal stragglers, shared in nine ways for the
same time. The loss is a small perceptron's whose workers see unlike data: it shows what graphs,
staleness and drift do, not what a large model would. Rates follow one law, linear scaling.
"""

import argparse
from pathlib import Path
from typing import Any

from sim.analysis.comparison.cases import cases, prepared
from sim.analysis.comparison.sharing import SharingComparison
from sim.config.files import atomic_write
from sim.kind import load

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


def main() -> None:
    asked = arguments()
    comparison = nine_ways(
        asked.workers, asked.gigabits, asked.sigma, model=asked.model, seconds=asked.seconds
    )
    print(comparison)
    print(f"first at the loss: {comparison.best.name}")
    with atomic_write(asked.picture) as part:
        comparison.plot().savefig(part, dpi=120)
    print(f"wrote {asked.picture}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Verbatim)
    parser.add_argument("--workers", type=int, default=16, help="nodes of 8 V100s")
    parser.add_argument("--gigabits", type=float, default=10.0, help="a second, of a node's link")
    parser.add_argument("--sigma", type=float, default=0.3, help="of the stragglers")
    parser.add_argument("--seconds", type=float, default=20.0, help="simulated")
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--picture", type=Path, default=Path("nine_ways.png"))
    return parser.parse_args()


_Verbatim = argparse.RawDescriptionHelpFormatter

if __name__ == "__main__":
    main()
