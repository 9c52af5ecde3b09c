"""Real learning behind the clock: 64 workers of a small convolutional net, 2,000 steps each.

    python -m benchmarks.learning [--steps N] [WAY ...]

Part of `make bench`. CPU and wall seconds of one process on one thread, with the start of torch;
they depend on the machine and are not asserted anywhere. Needs the extra `learning`.
"""

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.sharing import hosts
from sim.jobs.sharing.plan import Sharing, methods
from sim.jobs.sharing.run import run
from sim.jobs.sharing.setup import assemble
from sim.jobs.sharing.tables import Learning, StragglerCause
from sim.jobs.sharing.workload import Workload
from sim.variability.laws import Lognormal

HERE = Path(__file__).parent
WORKERS, STEPS = 64, 2_000
BAR = 120.0  # s on two cores

_SERVER: dict[str, Any] = {"method": "parameter_server"}
_GOSSIP: dict[str, Any] = {"method": "gossip"}
WAYS: dict[str, Mapping[str, Any]] = {
    "all-reduce": {"method": "all_reduce"},
    "server, synchronous": {**_SERVER},
    "server, backup": {**_SERVER, "mode": "backup", "backup": 4},
    "server, bound 4": {**_SERVER, "mode": "ssp", "bound": 4},
    "server, asynchronous": {**_SERVER, "mode": "async"},
    "D-PSGD": {**_GOSSIP},
    "AD-PSGD": {**_GOSSIP, "algorithm": "ad_psgd"},
    "push-sum": {**_GOSSIP, "algorithm": "sgp"},
    "random pairs": {**_GOSSIP, "algorithm": "random_pairs"},
    "EASGD": {"method": "elastic", "period": 10},
    "local SGD": {"method": "local_sgd", "period": 10},
    "asynchronous local SGD": {"method": "async_local_sgd", "period": 10, "outer_rate": 0.1},
    "federated": {"method": "federated", "period": 10},
}


def plan(way: str, steps: int) -> Sharing:
    """Workers of a net of two convolutions of 4 and 8 channels, batches of 32 digits."""
    keys = dict(WAYS[way])
    kinds = {kind.__dataclass_fields__["method"].default: kind for kind in methods()}
    return kinds[keys.pop("method")](
        workers=WORKERS,
        steps=steps,
        straggler=(StragglerCause(law=Lognormal(sigma=0.3)),),
        learning=Learning(task="digits", size=4, rate=0.01),
        **keys,
    )


def measured(way: str, steps: int) -> dict[str, float]:
    """CPU and wall seconds, and the loss that is reached."""
    processor, wall = time.process_time(), time.perf_counter()
    setup = assemble(plan(way, steps), hosts(), Workload.plain(0.1, 25.6e6), keep_spans=0)
    pool = run(setup)
    curve = pool.record.curve
    return {
        "cpu_seconds": time.process_time() - processor,
        "wall_seconds": time.perf_counter() - wall,
        "updates": pool.record.updates,
        "loss": curve[-1].loss,
    }


def table(figures: Mapping[str, Mapping[str, float]], steps: int) -> str:
    """The figures as a person reads them."""
    head = f"{WORKERS} workers of a convolutional net, {steps:,} steps each (< {BAR:.0f} s)"
    rows = (
        f"  {way:<24} {own['cpu_seconds']:7.1f} s CPU  {own['wall_seconds']:7.1f} s"
        f"  {own['updates']:>8,.0f} updates, loss {own['loss']:.4f}"
        for way, own in figures.items()
    )
    return "\n".join([head, *rows])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("ways", nargs="*", metavar="WAY", help=f"of {', '.join(WAYS)}")
    parser.add_argument("--steps", type=int, default=STEPS, help="fewer are not kept")
    asked = parser.parse_args()
    found = {}
    for way in asked.ways or WAYS:
        found[way] = measured(way, asked.steps)
        print(way, json.dumps(found[way]), flush=True)
    shown = table(found, asked.steps)
    if asked.steps == STEPS and not asked.ways:
        (HERE / "learning.json").write_text(json.dumps(found, indent=2) + "\n")
        (HERE / "learning.txt").write_text(shown + "\n")
    print(shown)
