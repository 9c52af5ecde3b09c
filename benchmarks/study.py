"""How fast questions are answered: search, sweeps, days of failures; and what a choice costs."""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.figures import Row, timed
from sim.config.units import DAY
from sim.reliability import failures
from sim.reliability import goodput as days
from sim.scenario.scenario import load
from sim.scenario.setup import from_scenario
from sim.search.search import search
from sim.search.space import assembled, space
from sim.simulate import run, simulate
from sim.sweep import points as vary
from sim.sweep import sweep as study
from sim.validation.regret import regret

KILLS = 10


def searching() -> dict[str, float]:
    """GPT-3 175B on 1,024 A100s: the whole search on one core, and on all of them."""
    asked = space("gpt3-175b", "dgx-a100-hdr", gpus=1024, global_batch=1536)
    alone = search(asked, jobs=1)
    found = search(asked)
    some = random.Random(0).sample(found.layouts, 5)
    _, clocked = timed(lambda: [run(assembled(asked, one.plan)) for one in some])
    best = found.best[0]
    return {
        "layouts": len(alone.layouts),
        "layouts_per_second_one_core": len(alone.layouts) / alone.wall_seconds,
        "clocked_runs_per_second": len(some) / clocked,
        "seconds": found.wall_seconds,
        "best_replay_over_clock": best.paced / best.step_time - 1.0,
    }


def failing() -> dict[str, float]:
    """30 days of 16,384 GPUs, and the share that counts in Llama 3's 54 days."""
    seen = failures.load("llama3")
    faults = seen.faults(16384)
    conduct = days.conduct_of(seen.recovery, 405e9 * 14, 54 * DAY / 466, 16)
    _, seconds = timed(lambda: days.run(faults, conduct, 30.0, 0))
    _, steps = timed(lambda: step_by_step(sum(one.rate for one in faults), 7.6, 30 * DAY))
    return {
        "days_30_gpus_16384_seconds": seconds,
        "days_30_step_by_step_seconds": steps,
        "llama3_effective": days.effective(faults, conduct, 54.0, 0),
    }


def step_by_step(rate: float, step: float, seconds: float) -> int:
    """The plain way through the days: at every step, has something failed?"""
    chance, failed = random.Random(0), 0
    for _ in range(int(seconds / step)):
        failed += chance.random() < rate * step
    return failed


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
        "points": count,
        "points_per_second_one_core": count / one,
        "runs_per_second": len(few) / bare,
        "two_cores_over_one": one / two,
    }


def killed(count: int = 400) -> dict[str, Any]:
    """Killed by SIGKILL at random moments, ten times, then finished: is it the same table?"""
    chance = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "sim.cli.main", "sweep", "megatron-1.7b",
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
    return {"kills": KILLS, "same_table": same}


def measure() -> dict[str, Any]:
    """All figures but the regret."""
    from_scenario(load("megatron-1.7b"))  # imports, before anything is timed
    return {"plan": searching(), "goodput": failing(), "sweep": sweeping(), "killed": killed()}


def rows(found: dict[str, Any]) -> list[Row]:
    """The figures of `measure` for the table."""
    plan, job, sweep, killed = (found[name] for name in ("plan", "goodput", "sweep", "killed"))
    return [
        Row(what=f"sim plan, {plan['layouts']:,} layouts that fit, end to end: a second, one core",
            value=f"{plan['layouts_per_second_one_core']:,.0f}", bar=">= 300",
            plain="one clocked run a layout", beside=f"{plan['clocked_runs_per_second']:.1f}"),
        Row(what="  sim plan gpt3-175b dgx-a100-hdr --gpus 1024, all cores",
            value=f"{plan['seconds']:.1f} s", bar="< 15 s", plain="one clocked run a layout",
            beside=f"{plan['layouts'] / plan['clocked_runs_per_second'] / 60.0:.0f} min"),
        Row(what="  its best, what the search said over the clock",
            value=f"{plan['best_replay_over_clock']:+.2%}", bar="1 %"),
        Row(what="30 days of 16,384 GPUs with failures",
            value=f"{job['days_30_gpus_16384_seconds']:.2f} s", bar="< 5 s",
            plain="a loop over steps that only asks for failures",
            beside=f"{job['days_30_step_by_step_seconds']:.2f} s"),
        Row(what="  effective training time of Llama 3's 54 days",
            value=f"{job['llama3_effective']:.1%}", bar="> 90 %"),
        Row(what=f"sweep of {sweep['points']:,} points, a second on one core",
            value=f"{sweep['points_per_second_one_core']:.0f}",
            plain="a loop of runs", beside=f"{sweep['runs_per_second']:.0f}"),
        Row(what="  two cores over one", value=f"{sweep['two_cores_over_one']:.2f}", bar=">= 1.6"),
        Row(what=f"  after {killed['kills']} kills by SIGKILL the undisturbed table",
            value=str(killed["same_table"]), bar="True"),
    ]  # fmt: skip


# --- What a choice costs --------------------------------------------------------------------------


def choosing(table: Path) -> dict[str, float]:
    """The regret of the layouts that the search prefers, on a CSV of measured runs."""
    return asdict(regret(table))


def choosing_rows(found: dict[str, float]) -> list[Row]:
    """The figures of `choosing` for the table."""
    return [
        Row(what=f"measured regret of the layout ranked first, median of {found['groups']} groups",
            value=f"{found['median']:.1%}", bar="<= 3 %"),
        Row(what="  mean", value=f"{found['mean']:.1%}", plain="a choice at random",
            beside=f"{found['chance']:.1%}"),
        Row(what="  mean", value=f"{found['mean']:.1%}",
            plain="constant utilisation (layouts that it ranks equal: their mean)",
            beside=f"{found['constant']:.1%}"),
    ]  # fmt: skip
