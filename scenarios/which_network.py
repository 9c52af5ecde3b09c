"""What may a network cost? The rent at which each is as good as the first for a job.

    python scenarios/which_network.py [SCENARIO] [--pod 8] [--picture which_network.png]

The scenario's own network, full; above pods of so many nodes 2:1 and 8:1 oversubscribed; and with a
half and a quarter of its bandwidth. A network on which a million tokens take longer is worth it
where a GPU's hour is as much cheaper.
"""

import argparse
from pathlib import Path

import sim
from sim.interface.plots import picture
from sim.scenario.setup import load_topology


def main() -> None:
    asked = arguments()
    job = sim.load(asked.scenario)
    compared = sim.compare(
        {name: sim.load(job, settings) for name, settings in networks(job, asked.pod).items()}
    )
    frame = compared.to_frame()
    print(f"{asked.scenario}: dollars a million tokens, and the rent that makes up for it")
    for name, row in frame.iterrows():
        print(
            f"  {name:<16}{row['step_time']:8.2f} s {row['dollars_per_million_tokens']:7.3f}"
            f" ({row['dollars_low']:.3f} to {row['dollars_high']:.3f})"
            f" {frame['step_time'].iloc[0] / row['step_time'] - 1.0:+7.1%}"
        )
    picture.save(compared.plot("bars"), asked.picture)
    print(f"wrote {asked.picture}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Verbatim)
    parser.add_argument("scenario", nargs="?", default="megatron-39b")
    parser.add_argument("--pod", type=int, default=8)
    parser.add_argument("--picture", type=Path, default=Path("which_network.png"))
    return parser.parse_args()


def networks(job: sim.Scenario, pod: int) -> dict[str, dict[str, object]]:
    """Changes of the scenario by the name of its network."""
    network = load_topology(job).network
    assert network is not None, f"{job.name} has no network"
    pods = {"network.shape": "fat-tree", "network.nodes_per_pod": pod}
    gigabits = 8e-9 * network.bandwidth
    return {
        "full": {**pods, "network.oversubscription": 1.0},
        "2:1 above pods": {**pods, "network.oversubscription": 2.0},
        "8:1 above pods": {**pods, "network.oversubscription": 8.0},
        "half": {"network.bandwidth": f"{gigabits / 2:g} Gb/s"},
        "a quarter": {"network.bandwidth": f"{gigabits / 4:g} Gb/s"},
    }


_Verbatim = argparse.RawDescriptionHelpFormatter

if __name__ == "__main__":
    main()
