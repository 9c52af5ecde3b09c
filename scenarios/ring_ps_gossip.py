"""Ring all-reduce, parameter server or gossip: which is fastest here, and which learns first?

    python scenarios/ring_ps_gossip.py [--workers 16] [--bandwidth "10 Gb/s"] [--sigma 0.3]
                                       [--model resnet50] [--picture ring_ps_gossip.png]

The same model on the same nodes under the same lognormal stragglers, shared in eight ways for the
same time. The loss is a noisy quadratic's: it shows what staleness and averaging do, not what a
large model would. A gradient moves the weights as far in every way: where n of them are averaged
the rate is n times as high (Goyal et al. 2017, section 2.1).
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sim
from sim.files import whole
from sim.share import share
from sim.sharing.outcome import Outcome
from sim.study.sharing import loss_figure

SERVER = {"method": "parameter_server", "shards": 2}
RATE = 0.01  # of one gradient
TARGET = 0.1
WAYS: dict[str, dict[str, Any]] = {
    "ring all-reduce": {"method": "all_reduce"},
    "ring, overlapped": {"method": "all_reduce", "overlap": True},
    "server, synchronous": {**SERVER, "mode": "bsp"},
    "server, bound 1": {**SERVER, "mode": "ssp", "bound": 1},
    "server, asynchronous": {**SERVER, "mode": "async"},
    "gossip, D-PSGD": {"method": "gossip", "algorithm": "d_psgd"},
    "gossip, AD-PSGD": {"method": "gossip", "algorithm": "ad_psgd"},
    "gossip, push-sum": {"method": "gossip", "algorithm": "sgp", "overlap": True},
}


def main() -> None:
    asked = arguments()
    print(f"{asked.workers} nodes, {asked.bandwidth}, lognormal stragglers of {asked.sigma}")
    print(
        f"{'way':<22}{'samples/s':>11}{'waiting':>9}{'staleness':>11}{'loss at target after':>22}"
    )
    outcomes = []
    for way, outcome in compared(asked):
        outcomes.append(outcome)
        idle = outcome.shares["waiting"] + outcome.shares["idle"]
        late, reached = outcome.staleness["mean"], outcome.time_to(TARGET)
        after = f"{reached:.1f} s" if reached else "never"
        rate = outcome.samples_per_second
        print(f"{way:<22}{rate:>11,.0f}{idle:>9.1%}{late:>11.1f}{after:>16}")
    with whole(asked.picture) as part:
        loss_figure(outcomes, title="Loss of a noisy quadratic").savefig(part, dpi=120)
    print(f"wrote {asked.picture}")


def compared(asked: argparse.Namespace) -> Iterator[tuple[str, Outcome]]:
    for way, sharing in WAYS.items():
        alone = sharing.get("mode") in ("async", "ssp")
        rate = RATE if alone else RATE * asked.workers
        common = {
            "worker": "node",
            "workers": asked.workers,
            "until": f"{asked.seconds} s",
            "straggler": [{"kind": "lognormal", "sigma": asked.sigma}],
            "learning": {"task": "quadratic", "rate": rate, "unlike": 0.2},
        }
        settings = {
            "sharing": {**common, **sharing},
            "model": asked.model,
            "network.bandwidth": asked.bandwidth,
        }
        yield way, share(sim.load("gossip-sgp", settings))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Verbatim)
    parser.add_argument("--workers", type=int, default=16, help="nodes of 8 V100s")
    parser.add_argument("--bandwidth", default="10 Gb/s", help="of a node's link")
    parser.add_argument("--sigma", type=float, default=0.3, help="of the stragglers")
    parser.add_argument("--seconds", type=float, default=20.0, help="simulated")
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--picture", type=Path, default=Path("ring_ps_gossip.png"))
    return parser.parse_args()


_Verbatim = argparse.RawDescriptionHelpFormatter

if __name__ == "__main__":
    main()
