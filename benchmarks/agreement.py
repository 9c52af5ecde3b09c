"""The search against the clock: random layouts of six models under every software stack.

    python -m benchmarks.agreement [COUNT [SEED]]

A layout that the search evaluates is played on the clock too. Where no transfers contend both must
say the same; where they do, the search, which knows nothing of it, is as far off as contention is
dear.
"""

import sys
from random import Random
from typing import Any

import numpy as np

from benchmarks.figures import Figure
from sim.analysis.search.evaluate import Candidate, Evaluator
from sim.analysis.search.search import assembled
from sim.analysis.search.space import space
from sim.config import catalog
from sim.config.errors import InputError
from sim.engine.clock import play as clocked
from sim.engine.fold import Folding
from sim.engine.play import play
from sim.parallel import schedule as schedules
from sim.parallel.plan import Plan
from sim.parallel.step import training_step
from sim.scenario.setup import PlanSetup

MODELS = ("bert-large", "gpt2-774m", "llama3.2-3b", "llama2-7b", "gpt3-175b", "megatron-22b")
TOPOLOGIES = ("dgx-a100-hdr", "dgx-h100-ndr")
MOST_PASSES = 2_000  # stages x chunks x microbatches of what the clock is asked to play
MOST_ROLES = 4  # of each stage, on average


def drawn(rng: Random) -> PlanSetup:
    """A layout of a random model, stack and size. Raises `InputError` for one that cannot be."""
    model, stack = rng.choice(MODELS), rng.choice(catalog.names("topologies/stacks"))
    tp, cp = rng.choice((1, 1, 2, 4, 8)), rng.choice((1, 1, 1, 2))
    pp, dp = rng.choice((1, 2, 4, 8, 12, 16, 24, 32)), rng.choice((1, 2, 4))
    name = rng.choice(sorted(schedules.table())) if pp > 1 else "1f1b"
    entry = schedules.entry(name)
    chunks = 1 if entry.chunks is not None or pp == 1 else rng.choice((2, 3))
    group = entry.group(pp)
    microbatches = group * -(-max(entry.least(pp), rng.randint(1, 3 * pp)) // group)
    microbatch = rng.choice((1, 1, 2, 4))
    replicate = rng.choice((1, 1, 2)) if dp > 1 else 1
    plan = Plan(
        global_batch=microbatches * microbatch * dp, microbatch=microbatch, tp=tp, cp=cp, pp=pp,
        dp=dp // replicate, dp_replicate=replicate, schedule=name, interleave=chunks,
        zero=rng.randint(0, 3), recompute=rng.choice(("none", "selective", "full")),
        sequence_parallel=tp > 1 and rng.random() < 0.5,
        order=rng.choice(("tp-cp-dp-pp", "tp-cp-pp-dp")),
    )  # fmt: skip
    if microbatches * pp * plan.chunks > MOST_PASSES:
        raise InputError("plan", "too many passes", "draw another")
    job = space(model, rng.choice(TOPOLOGIES), gpus=tp * cp * pp * dp, stack=stack,
                global_batch=plan.global_batch)  # fmt: skip
    return assembled(job, plan)


def compared(setup: PlanSetup) -> tuple[bool, float]:
    """Whether transfers contend, and what the search says over what the clock says, less one."""
    program = training_step(setup.job)
    folding = Folding(program, setup.machine)
    if len(folding.roles) > MOST_ROLES * len(program.stages):
        raise InputError("plan", "hardly any ranks are alike", "draw another")
    evaluated = Evaluator().times([Candidate.of(setup.job, setup.machine)])[0]
    alone = play(program, setup.machine).engine == "replay"
    end = clocked(folding.folded(), because="compared").end
    return not alone, float(evaluated) / end - 1.0


def measure(wanted: int = 100, seed: int = 0) -> dict[str, Any]:
    """Errors over so many random layouts."""
    rng = Random(seed)
    errors: dict[bool, list[float]] = {False: [], True: []}
    while sum(map(len, errors.values())) < wanted:
        try:
            contends, error = compared(drawn(rng))
        except InputError:
            continue
        errors[contends].append(abs(error))
    alone, contended = np.array(errors[False]), np.array(errors[True])
    return {
        "uncontended": len(alone),
        "uncontended_worst": float(alone.max(initial=0.0)),
        "contended": len(contended),
        "contended_within_3_percent": float((contended <= 0.03).mean()) if len(contended) else 1.0,
        "contended_median": float(np.median(contended)) if len(contended) else 0.0,
        "contended_worst": float(contended.max(initial=0.0)),
    }


def rows(figures: dict[str, Any]) -> list[Figure]:
    """As `benchmarks.run` prints them."""
    return [
        Figure(
            what=f"search against clock, {figures['uncontended']} layouts without contention",
            value=f"worst {figures['uncontended_worst']:.1e}",
            bar="0.1 %",
        ),
        Figure(
            what=f"  and {figures['contended']} with contention",
            value=f"{figures['contended_within_3_percent']:.0%} within 3 %",
            bar="95 %",
            plain="median, worst",
            beside=f"{figures['contended_median']:.2%}, {figures['contended_worst']:.1%}",
        ),
    ]


if __name__ == "__main__":
    for figure in rows(measure(*map(int, sys.argv[1:] or ["1000"]))):
        print(f"{figure.what}: {figure.value} ({figure.bar}); {figure.plain} {figure.beside}")
