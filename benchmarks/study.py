"""How fast questions are answered: search, sweeps, days of failures; each beside a plain baseline.

`python -m benchmarks.study [TABLE]` prints them; `benchmarks.run` includes them. TABLE is a CSV of
measured runs (the columns of README.md) for the regret of the layouts that the search prefers.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from sim.scenario import load
from sim.setup import from_scenario
from sim.simulate import run, simulate
from sim.study import failures, vary
from sim.study import goodput as days
from sim.study import sweep as study
from sim.study.layouts import Pruned, candidates, space
from sim.study.regret import regret
from sim.study.search import evaluate, search
from sim.units import DAY

KILLS = 10


def timed(act: Any) -> tuple[Any, float]:
    """What a call returns, and its seconds."""
    began = time.perf_counter()
    found = act()
    return found, time.perf_counter() - began


def searching() -> dict[str, float]:
    """GPT-3 175B on 1,024 A100s: layouts a second and core, and the whole search."""
    asked = space("gpt3-175b", "dgx-a100-hdr", gpus=1024, global_batch=1536)
    layouts, alone = timed(lambda: list(evaluate(candidates(asked, Pruned()))))
    found, seconds = timed(lambda: search(asked))
    best = found.best[0]
    some = random.Random(0).sample(layouts, 5)
    from sim.study.layouts import assembled

    _, clocked = timed(lambda: [run(assembled(asked, one.plan)) for one in some])
    return {
        "plan_layouts": len(layouts),
        "plan_layouts_per_second_and_core": len(layouts) / alone,
        "plan_baseline_one_clocked_run_a_layout": len(some) / clocked,
        "plan_gpt3_1024_seconds": seconds,
        "plan_best_replay_over_clock": best.paced / best.step_time - 1.0,
    }


def failing() -> dict[str, float]:
    """30 days of 16,384 GPUs, and the share that counts in Llama 3's 54 days."""
    seen = failures.load("llama3")
    faults = seen.faults(16384)
    conduct = days.conduct_of(seen.recovery, 405e9 * 14, 54 * DAY / 466, 16)
    _, seconds = timed(lambda: days.run(faults, conduct, 30.0, 0))
    return {
        "goodput_30_days_16384_gpus_seconds": seconds,
        "goodput_llama3_effective": days.effective(faults, conduct, 54.0, 0),
    }


def points(count: int) -> list[dict[str, Any]]:
    """So many different networks."""
    low, high = 100, 800
    texts = [f"network.bandwidth={low}..{high}Gb/s:{count // 4}", "plan.microbatch=1,2,4,8"]
    return [dict(one) for one in vary.points([vary.axis(text) for text in texts])]


def sweeping(count: int = 2000) -> dict[str, float]:
    """A sweep on one core, on two, and as one simulation a point without any of it."""
    name, asked = "megatron-7.5b", points(count)
    few = asked[:: max(count // 50, 1)]
    _, bare = timed(lambda: [simulate(load(name, point)) for point in few])
    _, one = timed(lambda: study.sweep(name, asked, jobs=1))
    _, two = timed(lambda: study.sweep(name, asked, jobs=2))
    return {
        "sweep_points": count,
        "sweep_points_per_second_one_core": count / one,
        "sweep_baseline_one_run_a_point": len(few) / bare,
        "sweep_two_cores_over_one": one / two,
    }


def killed(count: int = 400) -> dict[str, Any]:
    """Killed by SIGKILL at random moments, ten times, then finished: is it the same table?"""
    chance = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "sim.cli", "sweep", "megatron-1.7b",
                 f"--vary=network.bandwidth=100..800Gb/s:{count}"]  # fmt: skip
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}

        def begin(name: str) -> subprocess.Popen[bytes]:
            more = [f"--store={folder}/{name}.db", f"--out={folder}/{name}.csv"]
            return subprocess.Popen([*words, *more], start_new_session=True, **quiet)

        _, lasted = timed(lambda: begin("whole").wait())
        for _ in range(KILLS):
            hurt = begin("hurt")
            time.sleep(chance.uniform(0.1, 0.9) * lasted)
            if hurt.poll() is None:
                os.killpg(hurt.pid, signal.SIGKILL)
            hurt.wait()
        begin("hurt").wait()
        import pandas as pd

        one, other = (pd.read_csv(Path(folder) / f"{n}.csv") for n in ("whole", "hurt"))
        same = one.drop(columns=study.WALL).equals(other.drop(columns=study.WALL))
    return {"sweep_kills": KILLS, "sweep_same_table_after_kills": same}


def measure(table: Path | None = None) -> dict[str, Any]:
    """All figures."""
    from_scenario(load("megatron-1.7b"))  # imports, before anything is timed
    found = {**searching(), **failing(), **sweeping(), **killed()}
    if table is not None:
        one = regret(table)
        found |= {"regret_groups": one.groups, "regret_median": one.median,
                  "regret_mean": one.mean, "regret_constant_utilisation": one.constant,
                  "regret_random_choice": one.chance}  # fmt: skip
    return found


def text(found: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Rows of (what, figure, bar) for people."""
    rows = [
        ("sim plan, layouts a second and core, memory pruning included",
         f"{found['plan_layouts_per_second_and_core']:,.0f}", "> 300"),
        ("  baseline: one clocked run a layout",
         f"{found['plan_baseline_one_clocked_run_a_layout']:.1f}", ""),
        ("sim plan gpt3-175b, 1,024 GPUs", f"{found['plan_gpt3_1024_seconds']:.1f} s", "< 15 s"),
        ("  its best, replay against clock", f"{found['plan_best_replay_over_clock']:+.2%}", "1 %"),
        ("30 days of 16,384 GPUs with failures",
         f"{found['goodput_30_days_16384_gpus_seconds']:.2f} s", "< 5 s"),
        ("Llama 3's effective training time, 54 days",
         f"{found['goodput_llama3_effective']:.1%}", "> 90 %"),
        (f"sweep of {found['sweep_points']:,} points, points a second on one core",
         f"{found['sweep_points_per_second_one_core']:.1f}", ""),
        ("  baseline: one run a point", f"{found['sweep_baseline_one_run_a_point']:.1f}", ""),
        ("  two cores over one", f"{found['sweep_two_cores_over_one']:.2f}", "> 1.6"),
        (f"  the same table after {found['sweep_kills']} kills",
         str(found["sweep_same_table_after_kills"]), "True"),
    ]  # fmt: skip
    if "regret_median" in found:
        rows += [
            (f"regret of the layout ranked first, median of {found['regret_groups']} groups",
             f"{found['regret_median']:.1%}", "< 3 %"),
            ("  its mean", f"{found['regret_mean']:.1%}", ""),
            ("  mean of a constant utilisation", f"{found['regret_constant_utilisation']:.1%}", ""),
            ("  mean of a random choice", f"{found['regret_random_choice']:.1%}", ""),
        ]  # fmt: skip
    return rows


if __name__ == "__main__":
    figures = measure(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
    for what, value, bar in text(figures):
        print(f"{what:<66} {value:>10}  {bar}")
    print(json.dumps(figures))
