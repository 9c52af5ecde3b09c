"""Every two features of a job go together by both engines and the laws, or a line says why not."""

from itertools import combinations

import pytest

from docs import pairs
from sim import kind
from sim.engine.play import play
from sim.scenario.setup import from_scenario
from tests.campaign.features import FEATURES, job, together
from tests.campaign.job import SAME
from tests.campaign.records import over_capacity

COUNT = 16  # slices, so that a failure names few pairs


@pytest.mark.long
def test_the_page_says_which_pairs_are_refused() -> None:
    assert pairs.PAGE.read_text(encoding="utf-8") == pairs.page(), "run python -m docs.pairs"


@pytest.mark.long
@pytest.mark.parametrize("part", range(COUNT))
def test_pairs_are_played_alike_by_both_engines_and_keep_the_laws(part: int) -> None:
    refused = pairs.refusals()
    for pair in [own for own in combinations(FEATURES, 2) if own not in refused][part::COUNT]:
        settings = together(*pair)
        assert settings is not None
        setup = from_scenario(kind.described(job(settings)))
        result, record = kind.answer(setup), play(setup.program, setup.machine, engine="clock")
        assert record.step_time == pytest.approx(result.step_time, rel=SAME), pair
        assert sum(result.breakdown.values()) == pytest.approx(result.step_time, rel=SAME), pair
        parts = dict(result.memory_per_gpu)
        total = parts.pop("total")
        assert sum(parts.values()) == pytest.approx(total, rel=SAME), pair
        assert min(parts.values()) >= 0.0, pair
        assert not over_capacity(record), pair
