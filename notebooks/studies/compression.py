"""Compression: what a message may leave out, on scikit-learn's digits (extra `learning`)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sim.config.readable import human_bytes, human_seconds
from sim.jobs.sharing.outcome import Outcome

from .study import Key, Study, runs

POWER, NONE = "PowerSGD", "none"


def ranks(megabits: float = 200.0, *, seeds: int = 2) -> Study:
    """PowerSGD of rank 1 to 8 and none (Vogels et al. 2019, arXiv 1905.13727): bytes and
    time against loss. Raises `InputError` without the packages of the task."""
    plans: dict[Key, dict[str, Any]] = {
        (POWER, str(rank)): {"compression": {"kind": "powersgd", "rank": rank}}
        for rank in (1, 2, 4, 8)
    }
    study = Study(
        title=f"Rank of PowerSGD on {megabits:g} Mb/s (Vogels et al. 2019)",
        axis="rank",
        target=0.8,
        outcomes=_reduced({**plans, (POWER, NONE): {}}, megabits, seeds),
    )
    best = study.fastest(POWER)
    sent, whole = (study.outcomes[POWER, key][0].bytes for key in (best, NONE))
    said = (
        f"On {megabits:g} Mb/s rank {best} is the first at a loss of {study.target:g}, after "
        f"{human_seconds(study.time(POWER, best))} instead of "
        f"{human_seconds(study.time(POWER, NONE))}, with {human_bytes(sent)} on all links instead "
        f"of {human_bytes(whole)}."
    )
    return replace(study, conclusion=said)


def kinds(megabits: float = 200.0, *, seeds: int = 2) -> Study:
    """Every kind of compression at its usual setting, with error feedback, at equal steps."""
    plans: dict[Key, dict[str, Any]] = {(NONE, "usual"): {}}
    for kind in ("fp16", "int8", "onebit", "topk", "powersgd"):
        plans[kind, "usual"] = {"compression": {"kind": kind}}
    study = Study(
        title=f"Kinds of compression on {megabits:g} Mb/s",
        axis="setting",
        target=0.8,
        outcomes=_reduced(plans, megabits, seeds),
    )
    best = study.first("usual")
    said = (
        f"On {megabits:g} Mb/s {best} is the first at a loss of {study.target:g}, after "
        f"{human_seconds(study.time(best, 'usual'))}."
    )
    return replace(study, conclusion=said)


def _reduced(
    plans: Mapping[Key, Mapping[str, Any]], megabits: float, seeds: int
) -> dict[Key, tuple[Outcome, ...]]:
    """All-reduce of four layers of 1 MiB over slow links, an example."""
    return runs(
        plans,
        seeds=range(seeds),
        method="all_reduce",
        steps=100,
        network={"bandwidth": f"{megabits} Mb/s"},
        times={"forward": "30 ms", "backward": "70 ms", "parameters": 2**20, "layers": 4},
        learning={
            "task": "digits", "size": 8, "rate": 0.08, "scaling": "linear", "unlike": 0.5,
        },
    )  # fmt: skip
