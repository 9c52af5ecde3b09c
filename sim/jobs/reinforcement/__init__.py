"""How long does a step of reinforcement learning take, and which side waits for the other?

Servers write answers, a trainer learns from them, and weights travel back. Servers and trainer are
processes on `engine.live_cluster`. A mode combines a bound on staleness, a batch, and a rule for
answers in progress while weights change. No other folder needs this folder. Without it, `sim`
cannot play scenarios with a `[reinforcement]` table.
"""

from collections.abc import Iterable

KEYS = ("reinforcement",)
_MEASURED = ({"G-GBS", "Total_Step_time(s)"}, {"gpus_rollout", "step_s"}, {"rollout_ranks"})


def measures(columns: Iterable[str]) -> bool:
    """Whether a measured table with these columns is about reinforcement learning
    (`measured.py`)."""
    return any(needed <= set(columns) for needed in _MEASURED)
