"""How fast the asynchronous part is; published comparisons are in `benchmarks.published`.

    python -m benchmarks.sharing [--quick]

Part of `make bench`. CPU seconds of one process; they depend on the machine and are not asserted
anywhere.
"""

import argparse
import gc
import json
import time
from dataclasses import replace
from pathlib import Path

from benchmarks import published
from sim.collectives.libraries import backend
from sim.engine.machine import Machine
from sim.hardware.cluster import topology
from sim.hardware.cluster.networks.trees import Switch
from sim.jobs.sharing.methods.gossip import Gossip
from sim.jobs.sharing.methods.parameter_server import ParameterServer
from sim.jobs.sharing.plan import Sharing
from sim.jobs.sharing.run import build
from sim.jobs.sharing.setup import assemble
from sim.jobs.sharing.tables import LinkChange, StragglerCause
from sim.jobs.sharing.workload import Workload
from sim.variability.laws import Lognormal

HERE = Path(__file__).parent
WORKERS = (10, 100, 1_000, 3_000, 10_000)


def hosts() -> Machine:
    """Single-GPU hosts on one switch."""
    dgx = topology.load("dgx-1-v100")
    network = Switch(kind="infiniband", nics=1, bandwidth=12.5e9, latency=1e-6, efficiency=0.98)
    alone = replace(dgx, gpus=1, gpus_per_node=1, node=None, network=network)
    return Machine(alone, backend.load("nccl"))


def timed(plan: Sharing) -> tuple[float, int]:
    """CPU seconds of a run without arithmetic and pictures, and its updates."""
    pool = build(assemble(plan, hosts(), Workload.plain(0.1, 25.6e6), keep_spans=0))
    began = time.process_time()
    gc.disable()
    plan.start(pool)
    pool.run()
    gc.enable()
    return time.process_time() - began, pool.record.updates


def asynchronous(workers: int, steps: int, *, unlike: bool = False) -> tuple[float, int]:
    """Workers with stragglers against 8 shards: no two events at one instant; `unlike` ones have
    links of as many different rates, of which the slowest is a quarter of the fastest."""
    nics = range(workers if unlike else 0)
    return timed(
        ParameterServer(
            mode="async",
            workers=workers,
            shards=8,
            steps=steps,
            straggler=(StragglerCause(law=Lognormal(sigma=0.3)),),
            change=tuple(
                LinkChange(link=f"node{n}.nic0", at=0.0, factor=1 + 3 * n / workers) for n in nics
            ),
        )
    )


def gossip(workers: int, rounds: int, algorithm: str) -> tuple[float, int]:
    slow = (StragglerCause(law=Lognormal(sigma=0.3)),)
    plan = Gossip(algorithm=algorithm, workers=workers, steps=rounds, straggler=slow)
    return timed(plan)


def measure(quick: bool) -> dict[str, object]:
    """All figures: seconds, microseconds an update, milliseconds an iteration."""
    curve = []
    for workers in WORKERS[: 3 if quick else None]:
        steps = max(2, min(100, 20_000 // workers))
        row: dict[str, float] = {"workers": workers}
        for key, unlike in (("microseconds_per_update", False), ("of_unlike_workers", True)):
            seconds, updates = asynchronous(workers, steps, unlike=unlike)
            row[key] = 1e6 * seconds / updates
        curve.append(row)
    steps = 10 if quick else 100
    return {
        "async_1000_workers_8_shards_100_updates": asynchronous(1_000, steps)[0],
        "gossip_256_workers_1000_rounds": {
            algorithm: gossip(256, 10 * steps, algorithm)[0]
            for algorithm in ("d_psgd", "sgp", "ad_psgd", "random_pairs")
        },
        "cost_per_update": curve,
    }


def table(figures: dict) -> str:
    """The figures as a person reads them."""
    seconds = figures["async_1000_workers_8_shards_100_updates"]
    lines = [f"1,000 asynchronous workers, 8 shards, 100 updates each: {seconds:.1f} s  (< 60 s)"]
    for algorithm, spent in figures["gossip_256_workers_1000_rounds"].items():
        lines.append(f"256 gossip workers, 1,000 rounds, {algorithm}: {spent:.1f} s  (< 60 s)")
    lines += ["", "Cost of an update against workers (asynchronous, 8 shards); of unlike workers"]
    for row in figures["cost_per_update"]:
        like, unlike = row["microseconds_per_update"], row["of_unlike_workers"]
        lines.append(f"  {row['workers']:>7,}  {like:7.0f} us  {unlike:7.0f} us")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, not kept")
    quick = parser.parse_args().quick
    figures = measure(quick)
    shown = f"{table(figures)}\n\n{published.text()}"
    if not quick:
        (HERE / "sharing.json").write_text(json.dumps(figures, indent=2) + "\n")
        (HERE / "sharing.txt").write_text(shown + "\n")
    print(shown)
