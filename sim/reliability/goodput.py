"""Goodput: how much of a long run counts, from the rates of failures and how they are handled.

Effective training time = productive time / elapsed time (Llama 3, arXiv 2407.21783, section
3.3.4). Beside the simulation stand the classic formulas for a checkpoint of cost C (s) and a mean
time M (s) between failures: Young 1974, tau = sqrt(2 C M); Daly 2006, equation 37,
tau = sqrt(2 C M) [1 + sqrt(C / 2M) / 3 + C / 18M] - C for C < 2M, else M.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import sqrt
from typing import Any

import numpy as np

from sim.config.units import DAY, HOUR, MINUTE, human_bytes, human_seconds
from sim.engine.training_run import Conduct, Fault, Ledger, simulate
from sim.reliability.cost import Cost, cost_of
from sim.reliability.failures import Failures, Recovery
from sim.results.result import Result
from sim.scenario.setup import Setup
from sim.variability.generators import generator

TARGET = 0.9
ENOUGH = 10**9


def young(cost: float, between: float) -> float:
    """Young's best interval between checkpoints (s).

    Source: Young 1974, A first order approximation to the optimum checkpoint interval.

    >>> young(5.0, 1000.0)
    100.0
    """
    return sqrt(2.0 * cost * between)


def daly(cost: float, between: float) -> float:
    """Daly's higher-order best interval between checkpoints (s).

    Source: Daly 2006, A higher order estimate of the optimum checkpoint interval for restart
    dumps, equation 37.

    >>> round(daly(5.0, 1000.0), 2)
    96.69
    """
    if cost >= 2.0 * between:
        return between
    ratio = cost / (2.0 * between)
    return young(cost, between) * (1.0 + sqrt(ratio) / 3.0 + ratio / 9.0) - cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """`seconds` by cause over `days`; `effective` is the share that is productive.

    `between` is the mean time between interruptions (s), `young` and `daly` the formulas'
    intervals, `formula` the effective share that they expect at the interval used. `best` is the
    interval that the simulation itself finds best, with its effective share.
    """

    days: float
    gpus: int
    conduct: Conduct
    checkpoint_bytes: float
    seconds: dict[str, float]
    interruptions: int
    faults: dict[str, int]
    between: float
    young: float
    daly: float
    formula: float
    best: tuple[float, float]
    tokens: float
    cost: Cost
    allowed: tuple[dict[str, float], ...]

    @property
    def effective(self) -> float:
        return self.seconds["productive"] / sum(self.seconds.values())

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        found = asdict(self)
        found["conduct"], found["cost"] = asdict(self.conduct), self.cost.to_dict()
        return {"effective_training_time": self.effective, **found}


def goodput(
    setup: Setup, result: Result, failures: Failures, *, days: float, seed: int = 0
) -> Goodput:
    """Simulate a job of this step time for so many days."""
    topology, plan = setup.machine.topology, setup.job.plan
    faults = failures.faults(topology.gpus)
    rate = sum(fault.rate for fault in faults)
    between = 1.0 / rate if rate else float("inf")
    size = failures.recovery.bytes or checkpoint_bytes(setup)
    conduct = conduct_of(failures.recovery, size, between, plan.replicas)
    ledger = run(faults, conduct, days, seed)
    tokens, cost = _earned(setup, result, ledger.seconds["productive"], days)
    return Goodput(
        days=days, gpus=topology.gpus, conduct=conduct, checkpoint_bytes=size,
        seconds=ledger.seconds, interruptions=sum(ledger.faults.values()), faults=ledger.faults,
        between=between, young=young(conduct.stop, between), daly=daly(conduct.stop, between),
        formula=expected(conduct, between), best=best_interval(faults, conduct, days, seed),
        tokens=tokens, cost=cost, allowed=tuple(allowed(faults, conduct, between, days, seed)),
    )  # fmt: skip


def _earned(setup: Setup, result: Result, productive: float, days: float) -> tuple[float, Cost]:
    """The tokens of the productive seconds, and the cost of all days."""
    per_step = setup.job.plan.global_batch * setup.job.model.seq
    tokens, share = productive / result.step_time * per_step, productive / (days * DAY)
    topology = setup.machine.topology
    return tokens, cost_of(topology, result.step_time, per_step, tokens, goodput=share or 1.0)


def checkpoint_bytes(setup: Setup) -> float:
    """Weights in working precision, their fp32 copy and the optimizer's moments, of all ranks."""
    job = setup.job
    moments = {"adam": 8, "lamb": 8, "sgd": 4}[job.plan.optimizer]
    width = job.stack.weight_bytes(job.plan.precision)
    master = 4 if width < 4 and job.stack.master_weights else 0
    return job.model.parameters * float(width + master + moments)


def conduct_of(recovery: Recovery, size: float, between: float, replicas: int) -> Conduct:
    """A blocking checkpoint stops training for bytes / storage; an asynchronous one for a
    snapshot, and is written behind. Reading it back is part of every restart."""
    written = size / recovery.storage
    stop = recovery.stop if recovery.stop is not None else written
    if recovery.asynchronous:
        stop = min(recovery.snapshot, stop)
    interval = recovery.interval or max(daly(max(stop, 1.0), between), stop)
    return Conduct(
        interval=min(interval, 30 * DAY),
        stop=stop,
        persist=written if recovery.asynchronous else 0.0,
        detection=recovery.detection,
        restart=recovery.restart + written,
        slow_detection=recovery.slow_detection,
        spares=ENOUGH if recovery.spares is None else recovery.spares,
        repair=recovery.repair,
        replicas=replicas,
        elastic=recovery.elastic,
    )


def run(faults: Sequence[Fault], conduct: Conduct, days: float, seed: int) -> Ledger:
    """The ledger of so many days; the seed's generator for failures alone decides."""
    rng = generator(seed, "failures")
    return simulate(faults, conduct, seconds=days * DAY, rng=rng)


def effective(faults: Sequence[Fault], conduct: Conduct, days: float, seed: int) -> float:
    """The productive share of so many days."""
    return run(faults, conduct, days, seed).seconds["productive"] / (days * DAY)


def expected(conduct: Conduct, between: float) -> float:
    """The formulas' effective share: M e^(-(D+R)/M) (tau/M) / (e^((tau+C)/M) - 1), Daly 2006,
    equation 20, with the detection and restart of every failure."""
    if between == float("inf"):
        return conduct.interval / (conduct.interval + conduct.stop)
    away = (conduct.detection + conduct.restart) / between
    cycle = (conduct.interval + conduct.stop) / between
    return float(np.exp(-away) * (conduct.interval / between) / np.expm1(cycle))


def best_interval(
    faults: Sequence[Fault], conduct: Conduct, days: float, seed: int
) -> tuple[float, float]:
    """The best of some intervals around the one in use, by simulation of the same failures."""
    tried = [conduct.interval * 2.0 ** (power / 2.0) for power in range(-4, 5)]
    tried = [max(interval, 1.0) for interval in tried]
    shares = [effective(faults, replace(conduct, interval=one), days, seed) for one in tried]
    share, interval = max(zip(shares, tried, strict=True))
    return interval, share


def allowed(
    faults: Sequence[Fault], conduct: Conduct, between: float, days: float, seed: int
) -> list[dict[str, float]]:
    """What an effective share of `TARGET` needs: per cost of a checkpoint, the longest detection
    and restart together that still reach it, by bisection over simulations (0: out of reach)."""
    found = []
    days = min(days, 54.0)
    for stop in (1.0, 5.0, 15.0, 30.0, 60.0):
        asked = replace(conduct, stop=stop, persist=0.0, interval=daly(stop, between))
        found.append({"checkpoint": stop, "interval": asked.interval,
                      "away": _longest(faults, asked, between, days, seed)})  # fmt: skip
    return found


def _longest(
    faults: Sequence[Fault], conduct: Conduct, between: float, days: float, seed: int
) -> float:
    if between == float("inf"):
        return between
    # What the formulas allow brackets it: away < M ln(their share without any / target).
    ideal = expected(replace(conduct, detection=0.0, restart=0.0), between)
    low, high = 0.0, max(2.0 * between * float(np.log(ideal / TARGET)), 60.0)
    for _ in range(5):
        middle = (low + high) / 2.0
        asked = replace(conduct, detection=middle / 4.0, restart=middle * 3.0 / 4.0)
        enough = effective(faults, asked, days, seed) >= TARGET
        low, high = (middle, high) if enough else (low, middle)
    return low


def text(found: Goodput) -> str:
    """The account of the days, the formulas beside, and what the target needs."""
    blocks = (_account(found), _checkpoints(found), _needs(found), [_bill(found)])
    return "\n\n".join("\n".join(lines) for lines in blocks)


def _account(found: Goodput) -> list[str]:
    total = sum(found.seconds.values())
    head = (
        f"{found.days:g} days on {found.gpus:,} GPUs: effective training time "
        f"{found.effective:.1%} ({found.interruptions} interruptions, one in "
        f"{_hours(found.between)})"
    )
    return [head, ""] + [
        f"  {cause:<12} {seconds / total:7.2%}  {_hours(seconds)}"
        for cause, seconds in found.seconds.items()
    ]


def _checkpoints(found: Goodput) -> list[str]:
    conduct, (best, share) = found.conduct, found.best
    return [
        f"checkpoints of {human_bytes(found.checkpoint_bytes)} stop training for "
        f"{human_seconds(conduct.stop)} every {human_seconds(conduct.interval)}",
        f"best interval: Young {human_seconds(found.young)}, Daly {human_seconds(found.daly)}, "
        f"simulated {human_seconds(best)} ({share:.1%} effective)",
        f"by Daly's formula this interval gives {found.formula:.1%}",
    ]


def _needs(found: Goodput) -> list[str]:
    return [
        f"{TARGET:.0%} effective training time needs, at most, with the best interval:",
        "  checkpoint stops for   detection and restart together",
        *(f"  {human_seconds(one['checkpoint']):>20}   {_within(one['away'])}"
          for one in found.allowed),
    ]  # fmt: skip


def _bill(found: Goodput) -> str:
    cost = found.cost
    words = f"{found.tokens / 1e9:,.0f} billion tokens, {cost.gpu_hours:,.0f} GPU-hours"
    return words if cost.dollars is None else f"{words}, {cost.dollars:,.0f} dollars"


def _hours(seconds: float) -> str:
    return f"{seconds / HOUR:,.1f} h"


def _within(seconds: float) -> str:
    return "out of reach" if seconds == 0.0 else f"{seconds / MINUTE:.1f} min"
