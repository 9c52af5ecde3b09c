"""How long does a step of reinforcement learning take, and which side waits for the other?

Servers write answers, a trainer learns from them, and weights travel back. Servers and trainer are
processes on `engine.live_cluster`. A few mechanisms (a bound on staleness, a batch, a rule for
answers that run while weights change) give all modes. Nothing else needs this folder: without it,
scenarios with a `[reinforcement]` table are unknown.
"""

from collections.abc import Iterable

KEYS = ("reinforcement",)
_MEASURED = ({"G-GBS", "Total_Step_time(s)"}, {"gpus_rollout", "step_s"}, {"rollout_ranks"})


def measures(columns: Iterable[str]) -> bool:
    """Whether a measured table with these columns is about reinforcement learning (`measured`)."""
    return any(own <= set(columns) for own in _MEASURED)
