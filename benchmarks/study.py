"""How fast searches, sweeps and days of failures are; and the regret of the search's choice."""

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

from benchmarks.figures import Figure, timed
from benchmarks.regret import regret
from sim import run
from sim.analysis.reliability import failures, goodput
from sim.analysis.search.evaluate import Evaluator
from sim.analysis.search.layouts import Pruned, meshes
from sim.analysis.search.layouts import layouts as layouts_of
from sim.analysis.search.mesh_layouts import MeshLayouts
from sim.analysis.search.search import search
from sim.analysis.search.space import space
from sim.analysis.sweeps.points import axis, points
from sim.analysis.sweeps.sweep import sweep
from sim.analysis.sweeps.table import WALL
from sim.config.units import DAY
from sim.kind import load
from sim.parallel.job import Known
from sim.scenario.setup import from_scenario

KILLS = 10


def searching() -> dict[str, float]:
    """GPT-3 175B on 1,024 A100s: the whole search on one core, and on all of them."""
    layouts = space("gpt3-175b", "dgx-a100-hdr", gpus=1024, global_batch=1536)
    alone = search(layouts, jobs=1)
    outcome = search(layouts)
    best, decided = outcome.best[0], len(alone.layouts) + alone.pruned.slower
    return {
        "layouts": len(alone.layouts),
        "decided": decided,
        "layouts_per_second_one_core": decided / alone.search_seconds,
        "evaluated_per_second_one_core": evaluating(),
        "seconds": outcome.wall_seconds,
        "best_uncontended_over_played": best.uncontended / best.step_time - 1.0,
    }


def evaluating(count: int = 256) -> float:
    """Layouts a second of 1F1B pipelines of eight stages, evaluated together on one core."""
    layouts = space("gpt3-175b", "dgx-a100-hdr", gpus=1024, global_batch=1536,
                    only={"tp": ("8",), "pp": ("8",), "schedule": ("1f1b",)})  # fmt: skip
    (sizes,) = meshes(layouts, Pruned())
    mesh = MeshLayouts(layouts, sizes, Known())
    plans = (layout for _, plan in mesh.passes for layout in layouts_of(layouts, plan))
    candidates = [own for plan in plans if (own := mesh.candidate(plan)) is not None][:count]
    return len(candidates) / timed(lambda: Evaluator().times(candidates))[1]


def failing() -> dict[str, float]:
    """30 days of 16,384 GPUs, and the share that counts in Llama 3's 54 days."""
    table = failures.load("llama3")
    faults = table.faults(16384)
    conduct = goodput.conduct_of(table.recovery, 405e9 * 14, 54 * DAY / 466, 16)
    _, seconds = timed(lambda: goodput.run(faults, conduct, 30.0, 0))
    _, steps = timed(lambda: step_by_step(sum(fault.rate for fault in faults), 7.6, 30 * DAY))
    return {
        "days_30_gpus_16384_seconds": seconds,
        "days_30_step_by_step_seconds": steps,
        "llama3_effective": goodput.effective(faults, conduct, 54.0, 0),
    }


def step_by_step(rate: float, step: float, seconds: float) -> int:
    """The plain way through the days: at every step, has something failed?"""
    chance, failed = random.Random(0), 0
    for _ in range(int(seconds / step)):
        failed += chance.random() < rate * step
    return failed


def networks(count: int) -> list[dict[str, Any]]:
    """So many different networks."""
    low, high = 100, 800
    texts = [f"network.bandwidth={low}..{high}Gb/s:{count // 4}", "plan.microbatch=1,2,4,8"]
    return [dict(point) for point in points([axis(text) for text in texts])]


def sweeping(count: int = 2000) -> dict[str, float]:
    """A sweep on one core, on two, and as one simulation a point without any of it."""
    name, grid = "megatron-7.5b", networks(count)
    few = grid[:: max(count // 50, 1)]
    _, bare = timed(lambda: [run(load(name, point)) for point in few])
    _, one_core = timed(lambda: sweep(name, grid, jobs=1))
    _, two_cores = timed(lambda: sweep(name, grid, jobs=2))
    return {
        "points": count,
        "points_per_second_one_core": count / one_core,
        "runs_per_second": len(few) / bare,
        "two_cores_over_one": one_core / two_cores,
    }


def killed(count: int = 400) -> dict[str, Any]:
    """Killed by SIGKILL at random moments, ten times, then finished: is it the same table?"""
    chance = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "sim", "sweep", "megatron-1.7b",
                 f"--vary=network.bandwidth=100..800Gb/s:{count}"]  # fmt: skip
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}

        def begin(name: str) -> subprocess.Popen[bytes]:
            more = [f"--store={folder}/{name}.db", f"--out={folder}/{name}.csv"]
            return subprocess.Popen([*words, *more], start_new_session=True, **quiet)

        _, lasted = timed(lambda: begin("whole").wait())
        for _ in range(KILLS):
            victim = begin("hurt")
            time.sleep(chance.uniform(0.1, 0.9) * lasted)
            if victim.poll() is None:
                os.killpg(victim.pid, signal.SIGKILL)
            victim.wait()
        begin("hurt").wait()
        import pandas as pd

        whole, hurt = (pd.read_csv(Path(folder) / f"{n}.csv") for n in ("whole", "hurt"))
        same = whole.drop(columns=WALL).equals(hurt.drop(columns=WALL))
    return {"kills": KILLS, "same_table": same}


def measure() -> dict[str, Any]:
    """All figures but the regret."""
    from_scenario(load("megatron-1.7b"))  # imports, before anything is timed
    return {"plan": searching(), "goodput": failing(), "sweep": sweeping(), "killed": killed()}


def rows(measured: dict[str, Any]) -> list[Figure]:
    """The figures of `measure` for the table."""
    plan, days, sweeps, kills = (measured[name] for name in ("plan", "goodput", "sweep", "killed"))
    return [
        Figure(what=f"sim plan, {plan['decided']:,} layouts decided: a second, one core",
            value=f"{plan['layouts_per_second_one_core']:,.0f}", bar=">= 1,000",
            plain=f"{plan['layouts']:,} of them evaluated"),
        Figure(what="  evaluations alone, 1F1B on 8 stages: a second, one core",
            value=f"{plan['evaluated_per_second_one_core']:,.0f}", bar=">= 1,000"),
        Figure(what="  sim plan gpt3-175b dgx-a100-hdr --gpus 1024, all cores",
            value=f"{plan['seconds']:.1f} s"),
        Figure(what="  its best, without contention over played",
            value=f"{plan['best_uncontended_over_played']:+.2%}", bar="1 %"),
        Figure(what="30 days of 16,384 GPUs with failures",
            value=f"{days['days_30_gpus_16384_seconds']:.2f} s", bar="< 5 s",
            plain="a loop over steps that only asks for failures",
            beside=f"{days['days_30_step_by_step_seconds']:.2f} s"),
        Figure(what="  effective training time of Llama 3's 54 days",
            value=f"{days['llama3_effective']:.1%}", bar="> 90 %"),
        Figure(what=f"sweep of {sweeps['points']:,} points, a second on one core",
            value=f"{sweeps['points_per_second_one_core']:.0f}",
            plain="a loop of runs", beside=f"{sweeps['runs_per_second']:.0f}"),
        Figure(what="  two cores over one",
            value=f"{sweeps['two_cores_over_one']:.2f}", bar=">= 1.6"),
        Figure(what=f"  after {kills['kills']} kills by SIGKILL the undisturbed table",
            value=str(kills["same_table"]), bar="True"),
    ]  # fmt: skip


# --- Regret ---------------------------------------------------------------------------------------


def regrets(table: Path) -> dict[str, float]:
    """The regret of the layouts that the search prefers, on a CSV of measured runs."""
    return asdict(regret(table))


def regret_rows(regrets: dict[str, float]) -> list[Figure]:
    """The figures of `regrets` for the table."""
    return [
        Figure(what=f"regret of the layout ranked first, median of {regrets['groups']} groups",
            value=f"{regrets['median']:.1%}", bar="<= 3 %"),
        Figure(what="  mean", value=f"{regrets['mean']:.1%}", plain="a choice at random",
            beside=f"{regrets['chance']:.1%}"),
        Figure(what="  mean", value=f"{regrets['mean']:.1%}",
            plain="constant utilisation (layouts that it ranks equal: their mean)",
            beside=f"{regrets['constant']:.1%}"),
    ]  # fmt: skip
