"""The causes of the lost time of drawn steps, for steps played in any way."""

from collections.abc import Callable

import numpy as np

from sim.analysis.samples.rank_slowdowns import Floats, RankPlacement, RankSlowdowns
from sim.variability.laws import Jitter, Lognormal

Steps = Callable[[Floats], Floats]  # seconds of steps with these slowdowns [steps, ranks]

REMOVED = (1, 4, 16)  # numbers of the slowest nodes that are replaced


def by_cause(
    steps: Steps, slowdowns: RankSlowdowns, times: Floats, healthy: float
) -> dict[str, float]:
    """Return for each cause by how many seconds the mean step would be shorter without it."""
    mean = float(times.mean())
    if len(slowdowns.by_cause) == 1:
        return dict.fromkeys(slowdowns.by_cause, mean - healthy)
    return {
        name: mean - float(steps(slowdowns.without(name)).mean()) for name in slowdowns.by_cause
    }


def removed(
    steps: Steps, placement: RankPlacement, slowdown: Floats, closer: RankSlowdowns, times: Floats
) -> tuple[dict[str, float], ...]:
    """Return the mean step with the nodes of largest mean slowdown replaced by the median node."""
    per_node = np.bincount(placement.node, slowdown) / np.bincount(placement.node)
    order = np.argsort(-per_node, kind="stable")
    usual = np.flatnonzero(placement.node == order[len(order) // 2])
    rows = [{"nodes": 0, "mean": float(times.mean()), "gain": 0.0}]
    factors = closer.total.copy()
    for k, node in enumerate(order[: min(REMOVED[-1], placement.nodes // 4)], 1):
        slow = np.flatnonzero(placement.node == node)
        factors[:, slow] = closer.total[:, usual[: len(slow)]]
        if k in REMOVED:
            mean = float(steps(factors).mean())
            rows.append({"nodes": k, "mean": mean, "gain": rows[0]["mean"] - mean})
    return tuple(rows)


def assumed(jitter: Jitter) -> list[str]:
    """Return the remark for scenarios that do not say how ranks vary."""
    if not jitter.assumed:
        return []
    law = jitter.causes[0].law
    assert isinstance(law, Lognormal)
    return [
        f"the scenario has no [jitter] table: lognormal with sigma {law.sigma} per rank and step "
        "is assumed"
    ]
