"""The clock: one step of the main jobs, operations a second, and what more GPUs cost."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import simpy

from benchmarks.figures import Figure, best, least_cpu
from sim import run
from sim.engine.clock import play
from sim.engine.fold import fold
from sim.kind import load
from sim.parallel.step import training_step
from sim.scenario.scenario import Scenario
from sim.scenario.setup import from_scenario
from sim.simulate import garbage_left

SCALES = (64, 256, 1024, 4096, 16384, 65536)


def python(*words: str) -> Callable[[], object]:
    """A fresh interpreter with these words."""
    return lambda: subprocess.run([sys.executable, *words], check=True, capture_output=True)


def sim(*words: str) -> Callable[[], object]:
    """The command in a fresh interpreter."""
    return python("-m", "sim", *words)


def bare_simpy(events: int = 300_000) -> float:
    """Timeouts a CPU second that SimPy manages with nothing around them."""

    def ticks(env: simpy.Environment):
        for _ in range(events):
            yield env.timeout(1.0)

    env = simpy.Environment()
    env.process(ticks(env))
    return events / least_cpu(env.run, repeat=1)


def slow_rank(name: str, **more: object) -> dict[str, float]:
    """CPU seconds of a step on the clock, and of one in which a rank of a tensor-parallel group is
    slow, which is played beside the healthy one."""
    healthy, slow = (
        load(name, more),
        load(name, {**more, "straggler": [{"rank": 5, "factor": 1.5}]}),
    )
    return {
        "healthy": least_cpu(lambda: run(healthy, engine="clock"), 3),
        "slow": least_cpu(lambda: run(slow), 3),
    }


MILLION = 2**20


def million() -> dict[str, object]:
    """What makes Llama 3 405B a job of a million GPUs."""
    replicas = MILLION // 128
    return {"gpus": MILLION, "plan.dp": replicas, "plan.global_batch": 16 * replicas}


def operations_per_second(name: str) -> tuple[int, float]:
    """Steps of a scenario's folded program, and how many the clock plays a CPU second."""
    setup = from_scenario(load(name))
    program = fold(training_step(setup.job), setup.machine)
    with garbage_left():  # as `simulate` plays it
        return program.steps, program.steps / least_cpu(lambda: play(program), repeat=5)


def measure() -> dict[str, Any]:
    """CPU seconds, and operations a CPU second."""
    steps, rate = operations_per_second("gpt3-175b-megatron")
    contended_steps, contended = operations_per_second("llama3-405b-16k")
    return {
        "bare_simpy_timeouts_per_second": bare_simpy(),
        "operations": steps,
        "operations_per_second": rate,
        "contended_operations": contended_steps,
        "contended_operations_per_second": contended,
        "slow_rank": {
            "175B, 64 GPUs": slow_rank("gpt3-175b-megatron"),
            "405B, 16,384 GPUs": slow_rank("llama3-405b-16k"),
            "405B, 1,048,576 GPUs": slow_rank("llama3-405b-16k", **million()),
        },
        "llama3_405b_16384_gpus_in_process": least_cpu(lambda: run("llama3-405b-16k"), 5),
        "llama3_405b_16384_gpus_command": least_cpu(sim("run", "llama3-405b-16k"), 3),
        "gpt3_175b_64_gpus_in_process": least_cpu(lambda: run("gpt3-175b-megatron"), 5),
        "gpt3_175b_64_gpus_unfolded": least_cpu(
            lambda: run("gpt3-175b-megatron", unfold=True), 1
        ),
        "sim_help": least_cpu(sim("--help"), 5),
        "bare_python": least_cpu(python("-c", "pass"), 5),
    }  # fmt: skip


def rows(measured: dict[str, Any]) -> list[Figure]:
    """The figures of `measure` for the table."""
    bare = f"{measured['bare_simpy_timeouts_per_second']:,.0f}"
    return [
        Figure(what="Llama 3 405B, 16,384 GPUs, one step, in process, CPU",
            value=f"{measured['llama3_405b_16384_gpus_in_process']:.2f} s", bar="< 1 s"),
        Figure(what="the same, whole command, CPU",
            value=f"{measured['llama3_405b_16384_gpus_command']:.2f} s", bar="< 2.5 s"),
        Figure(what="GPT-3 175B, 64 GPUs, in process, CPU",
            value=f"{measured['gpt3_175b_64_gpus_in_process']:.2f} s", bar="< 0.5 s",
            plain="every rank by itself (--unfold)",
            beside=f"{measured['gpt3_175b_64_gpus_unfolded']:.1f} s"),
        Figure(what="sim --help, CPU", value=f"{measured['sim_help']:.2f} s", bar="< 0.4 s",
            plain="python -c pass", beside=f"{measured['bare_python']:.2f} s"),
        Figure(what="operations a CPU second on the clock, 175B",
            value=f"{measured['operations_per_second']:,.0f}", bar="> 80,000",
            plain="bare SimPy, timeouts a CPU second", beside=bare),
        Figure(what="the same where activations and gradients share NICs, 405B",
            value=f"{measured['contended_operations_per_second']:,.0f}", bar="> 80,000",
            plain="bare SimPy, timeouts a CPU second", beside=bare),
        *(
            Figure(what=f"one slow rank in a tensor-parallel group, {job}, CPU",
                value=f"{own['slow']:.2f} s", bar="< 2 s" if "1,048" in job else "",
                plain="over the step without it on the clock, bar 2",
                beside=f"{own['slow'] / own['healthy']:.1f}")
            for job, own in measured["slow_rank"].items()
        ),
    ]  # fmt: skip


def ratios(measured: dict[str, Any]) -> dict[str, float]:
    """Seconds of an operation on the clock over those of a bare timeout of SimPy."""
    bare = measured["bare_simpy_timeouts_per_second"]
    return {
        "operation on the clock / SimPy timeout": bare / measured["operations_per_second"],
        "contending operation / SimPy timeout": bare / measured["contended_operations_per_second"],
    }


# --- More GPUs ------------------------------------------------------------------------------------


def scaled(gpus: int) -> Scenario:
    """The 175B job with its replicas multiplied; each replica's work stays the same."""
    scenario = load("gpt3-175b-megatron")
    plan = replace(scenario.plan, dp=None, global_batch=scenario.plan.global_batch * gpus // 64)
    return replace(scenario, gpus=gpus, plan=plan)


def peak_memory(gpus: int) -> float:
    """MiB at the peak of a process that runs one scenario and nothing else."""
    code = (
        "from benchmarks.clock import scaled; from benchmarks.figures import peak_mib;"
        f"from sim.simulate import simulate; run(scaled({gpus})); print(peak_mib())"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return float(done.stdout)


def scaling() -> list[dict[str, float]]:
    """Seconds and MiB by the number of GPUs."""
    return [
        {
            "gpus": gpus,
            "seconds": best(lambda gpus=gpus: run(scaled(gpus)), repeat=3),
            "peak_mib": peak_memory(gpus),
            "roles": run(scaled(gpus)).roles,
        }
        for gpus in SCALES
    ]


def scaling_rows(sizes: list[dict[str, float]]) -> list[Figure]:
    """The figures of `scaling` for the table."""
    return [
        Figure(what=f"175B job, replicas multiplied to {row['gpus']:,} GPUs, one step",
            value=f"{row['seconds']:.2f} s", plain=f"{row['roles']} roles, peak memory",
            beside=f"{row['peak_mib']:.0f} MiB")
        for row in sizes
    ]  # fmt: skip
