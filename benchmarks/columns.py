"""Replay against the clock: how many evaluations a second, and whether the two agree.

Everything here is measured in one process, the clock back to back with replay. What plays single
steps without a clock is beside it: how near it is to the clock, and what it costs in
`benchmarks.cold`.
"""

import json
import subprocess
import sys
from random import Random
from typing import Any

import numpy as np

from benchmarks.figures import Figure, best, least_cpu
from sim.engine import play as engines
from sim.engine.clock import play
from sim.engine.columns.contention import clocked_contention
from sim.engine.columns.program import ColumnProgram
from sim.engine.fold import fold
from sim.kind import load
from sim.parallel.step import training_step
from sim.scenario.setup import from_scenario

NAME = "gpt3-175b-megatron"


def speed(columns: int = 4096) -> dict[str, float]:
    """One evaluation and many of the 175B job, beside the clock."""
    setup = from_scenario(load(NAME))
    program = fold(training_step(setup.job), setup.machine)
    contention = clocked_contention(program)
    replay = ColumnProgram(program, factors=contention.factors, longer=contention.longer)
    compiling = best(replay.time, repeat=1)
    noise = np.random.default_rng(0).lognormal(0.0, 0.02, (len(replay.parameters), columns))
    many = replay.parameters[:, None] * noise
    return {
        "steps": program.steps,
        "clock_seconds": best(lambda: play(program), repeat=5),
        "compile_seconds": compiling,
        "one_seconds": best(replay.time, repeat=100),
        "columns_per_second": columns / best(lambda: replay.times(many), repeat=3),
        "difference": abs(replay.time() / play(program).end - 1.0),
    }


def random_plan(rng: Random) -> dict[str, object]:
    """A small layout with durations and sizes of its own."""
    pp = rng.choice((1, 2, 4))
    microbatches = pp * rng.randint(1, 4)
    return dict(
        tp=rng.choice((1, 2, 4, 8)), dp=rng.choice((1, 2)), pp=pp, microbatches=microbatches,
        chunks=rng.choice((1, 2, 3)) if pp > 1 else 1,
        style=rng.choice(("batched", "async-send", "overlapped")), layers=rng.randint(1, 3),
        forward=rng.uniform(1e-4, 1e-2), boundary=10 ** rng.uniform(3, 7),
        gradients=10 ** rng.uniform(6, 9), overlap=rng.random() < 0.5,
        host=rng.choice((0.0, 1e-5, 1e-3)),
    )  # fmt: skip


def agreement(wanted: int = 500) -> dict[str, float]:
    """The worst difference from the clock over random plans in which no transfers contend, and that
    of steps which were played without a clock, at once."""
    from tests.engine.programs import machine, training

    rng, worst, worst_step, compared, tried, steps = Random(0), 0.0, 0.0, 0, 0, 0
    while compared < wanted:
        plan = random_plan(rng)
        gpus = plan["tp"] * plan["dp"] * plan["pp"]  # type: ignore[operator]
        step, cluster = training(**plan), machine("dgx-a100-hdr", gpus)  # type: ignore[arg-type]
        program, tried = fold(step, cluster), tried + 1
        if clocked_contention(program):
            continue
        compared += 1
        clocked = play(program).end
        worst = max(worst, abs(ColumnProgram(program).time() / clocked - 1.0))
        record = engines.play(step, cluster)
        if record.engine == "replay":
            steps += 1
            worst_step = max(worst_step, abs(record.end / clocked - 1.0))
    return {"plans": compared, "tried": tried, "worst": worst,
            "steps_without_clock": steps, "worst_step": worst_step}  # fmt: skip


def measure() -> dict[str, Any]:
    """Seconds and evaluations a second, and how near replay is to the clock."""
    return {"speed": speed(), "agreement": agreement()}


def rows(measured: dict[str, Any]) -> list[Figure]:
    """The figures of `measure` for the table."""
    fast, same = measured["speed"], measured["agreement"]
    clock = fast["clock_seconds"]
    return [
        Figure(what="replay of GPT-3 175B, 64 GPUs: one evaluation, compiled",
            value=f"{1e3 * fast['one_seconds']:.2f} ms", bar="<= 2 ms",
            plain="the clock, folded already", beside=f"{1e3 * clock:.0f} ms"),
        Figure(what="  compiling it, once a shape",
            value=f"{1e3 * fast['compile_seconds']:.0f} ms"),
        Figure(what="  evaluations a second over columns, one core",
            value=f"{fast['columns_per_second']:,.0f}", bar=">= 4,000",
            plain="clock runs a second", beside=f"{1.0 / clock:.1f}"),
        Figure(what=f"  worst difference from the clock, {same['plans']} random plans, uncontended",
            value=f"{same['worst']:.1e}", bar="<= 1e-9"),
        Figure(what=f"  the same of the {same['steps_without_clock']} single steps among them that "
            "need no clock", value=f"{same['worst_step']:.1e}", bar="<= 1e-9"),
    ]  # fmt: skip


def ratios(measured: dict[str, Any]) -> dict[str, float]:
    """A step of many evaluated together over one on the clock."""
    fast = measured["speed"]
    each = 1.0 / fast["columns_per_second"]
    return {"step among many replayed / on the clock": each / fast["clock_seconds"]}


# --- Straggler samples ----------------------------------------------------------------------------

JOB = "llama3-405b-16k"


def sampling(count: int = 1000) -> dict[str, Any]:
    """A thousand steps of Llama 3 405B on 16,384 GPUs, and ten times as many, each in a process of
    its own."""
    setup = from_scenario(load(JOB))
    program = fold(training_step(setup.job), setup.machine)
    few, many = _sampled(count), _sampled(10 * count)
    return {"samples": count, **few, "ten_times": many, "replicas": setup.job.plan.data_parallel,
            "clock_seconds": least_cpu(lambda: play(program), repeat=3)}  # fmt: skip


def _sampled(count: int) -> dict[str, float]:
    """Seconds, CPU seconds of all processes, MiB of the first, and how near the clock."""
    code = (
        "import json, os; from benchmarks.figures import peak_mib;"
        "from sim.analysis.samples.samples import samples;"
        f"drawn = samples({JOB!r}, {count});"
        "numbers = drawn.wall_seconds, sum(os.times()[:4]), peak_mib(), drawn.worst_error;"
        "print(json.dumps(numbers))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    names = ("seconds", "cpu_seconds", "peak_mib", "worst_error")
    return dict(zip(names, json.loads(done.stdout), strict=True))


def sampling_rows(sampled: dict[str, Any]) -> list[Figure]:
    """The figures of `sampling` for the table."""
    hours = sampled["samples"] * sampled["replicas"] * sampled["clock_seconds"] / 3600.0
    many = sampled["ten_times"]
    return [
        Figure(what="straggler samples: Llama 3 405B, 16,384 GPUs, 1,000 steps",
            value=f"{sampled['seconds']:.1f} s", bar="< 5 s",
            plain="a loop over steps and replicas on the clock", beside=f"{hours:.1f} h"),
        Figure(what="  CPU seconds of all its processes", value=f"{sampled['cpu_seconds']:.1f} s",
            bar="< 10 s", plain="ten times as many steps", beside=f"{many['cpu_seconds']:.1f} s"),
        Figure(what="  peak memory", value=f"{sampled['peak_mib']:,.0f} MiB",
            plain="of ten times as many steps, over it",
            beside=f"{many['peak_mib'] / sampled['peak_mib']:.2f}"),
        Figure(what="  worst difference from the clock, 20 samples",
            value=f"{sampled['worst_error']:.2%}", bar="< 1 %"),
    ]  # fmt: skip
