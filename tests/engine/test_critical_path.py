"""The critical path adds up to the step, whatever a score is made of."""

import pytest

from sim.engine.clock import play
from sim.engine.critical_path import critical_path
from tests.engine.scores import random_score


@pytest.mark.parametrize("seed", range(40))
def test_the_seconds_of_the_critical_path_are_at_most_the_step(seed: int) -> None:
    score = random_score(seed)
    timeline = play(score)
    found = critical_path(score, timeline)
    assert all(seconds >= -1e-12 for seconds in found.values())
    assert sum(found.values()) <= timeline.end * (1 + 1e-9)
