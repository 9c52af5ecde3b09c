"""How fast the simulator is: every figure of the README, measured again by `make bench`.

Times are the best of a few runs, each beside what the machine does with SimPy alone, because
machines differ and are shared. Nothing here is a test: tests never assert wall time.
"""

import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import simpy

from benchmarks import replay, study
from sim.engine.clock import play
from sim.engine.fold import fold
from sim.parallel.step import training_step
from sim.scenario import Scenario, load
from sim.setup import from_scenario
from sim.simulate import garbage_left, simulate

HERE = Path(__file__).parent
SCALES = (64, 256, 1024, 4096, 16384, 65536)


def best(act: Callable[[], object], repeat: int = 5) -> float:
    """The shortest of a few runs, in seconds."""
    times = []
    for _ in range(repeat):
        began = time.perf_counter()
        act()
        times.append(time.perf_counter() - began)
    return min(times)


def command(*words: str) -> Callable[[], object]:
    """Running the command in a fresh interpreter."""
    call = [sys.executable, "-m", "sim.cli", *words]
    return lambda: subprocess.run(call, check=True, capture_output=True)


def bare_simpy(events: int = 300_000) -> float:
    """Timeouts a second that SimPy manages with nothing around them."""

    def ticks(env: simpy.Environment):
        for _ in range(events):
            yield env.timeout(1.0)

    env = simpy.Environment()
    env.process(ticks(env))
    return events / best(env.run, repeat=1)


def operations_per_second(name: str) -> tuple[int, float]:
    """Steps of a scenario's score, and how many the clock plays a second."""
    setup = from_scenario(load(name))
    score = fold(training_step(setup.job), setup.machine)
    steps = sum(part.steps for part in score.parts)
    with garbage_left():  # as `simulate` plays it
        return steps, steps / best(lambda: play(score))


def scaled(gpus: int) -> Scenario:
    """The 175B job with its replicas multiplied; each replica's work stays the same."""
    scenario = load("gpt3-175b-megatron")
    plan = replace(scenario.plan, dp=None, global_batch=scenario.plan.global_batch * gpus // 64)
    return replace(scenario, gpus=gpus, plan=plan)


def peak_memory(gpus: int) -> float:
    """MiB at the peak of a process that runs one scenario and nothing else."""
    code = (
        "import resource; from benchmarks.run import scaled; from sim.simulate import simulate;"
        f"simulate(scaled({gpus}));"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return float(done.stdout)


def measure() -> dict[str, object]:
    """All figures, in seconds, operations a second and MiB."""
    steps, rate = operations_per_second("gpt3-175b-megatron")
    contended_steps, contended = operations_per_second("llama3-405b-16k")
    return {
        "machine": f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}",
        "versions": {name: version(name) for name in ("clustersim", "simpy", "numpy")},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "bare_simpy_timeouts_per_second": bare_simpy(),
        "operations": steps,
        "operations_per_second": rate,
        "contended_operations": contended_steps,
        "contended_operations_per_second": contended,
        "llama3_405b_16384_gpus_in_process": best(lambda: simulate("llama3-405b-16k")),
        "llama3_405b_16384_gpus_command": best(command("run", "llama3-405b-16k"), repeat=3),
        "gpt3_175b_64_gpus_in_process": best(lambda: simulate("gpt3-175b-megatron")),
        "sim_help": best(command("--help"), repeat=5),
        "replay": replay.measure(),
        "scaling": [
            {
                "gpus": gpus,
                "seconds": best(lambda gpus=gpus: simulate(scaled(gpus)), repeat=3),
                "peak_mib": peak_memory(gpus),
                "roles": simulate(scaled(gpus)).roles,
            }
            for gpus in SCALES
        ],
        "study": study.measure(),
    }


def table(found: dict) -> str:
    """The figures as a person reads them, with the bar that each is held to."""
    rows = [
        ("Llama 3 405B, 16,384 GPUs, one step, in process",
         f"{found['llama3_405b_16384_gpus_in_process']:.2f} s", "< 1 s"),
        ("the same, whole command", f"{found['llama3_405b_16384_gpus_command']:.2f} s", "< 2.5 s"),
        ("GPT-3 175B, 64 GPUs, in process",
         f"{found['gpt3_175b_64_gpus_in_process']:.2f} s", "< 0.5 s"),
        ("sim --help", f"{found['sim_help']:.2f} s", "< 0.4 s"),
        ("program operations a second on the clock (175B)",
         f"{found['operations_per_second']:,.0f}", "> 80,000"),
        ("the same where every stage's gradients and activations share NICs (405B)",
         f"{found['contended_operations_per_second']:,.0f}", "> 80,000"),
        ("bare SimPy timeouts a second, same run",
         f"{found['bare_simpy_timeouts_per_second']:,.0f}", ""),
        ("operations per bare timeout",
         f"1 / {found['bare_simpy_timeouts_per_second'] / found['operations_per_second']:.1f}", ""),
    ]  # fmt: skip
    rows += study.text(found["study"])
    width = max(len(what) for what, _, _ in rows)
    lines = [f"{found['machine']}, {found['date']}", ""]
    lines += [f"{what:<{width}}  {value:>10}  {bar}" for what, value, bar in rows]
    lines += ["", "GPT-3 175B, replicas multiplied:", "   GPUs  roles  seconds  peak MiB"]
    lines += [
        f"{row['gpus']:>7,}  {row['roles']:>5}  {row['seconds']:>7.2f}  {row['peak_mib']:>8.0f}"
        for row in found["scaling"]
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    figures = measure()
    (HERE / "latest.json").write_text(json.dumps(figures, indent=2) + "\n")
    (HERE / "latest.txt").write_text(table(figures) + "\n")
    print(table(figures))
