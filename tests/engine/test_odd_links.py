"""A slow link of any kind is seen wherever it is: folded as rank by rank."""

import pytest

from sim import kind

AWAY = {"gpus": 24, "plan.dp": 24, "plan.global_batch": 96, "model.layers": 2}


@pytest.mark.parametrize("link", ["node2.pcie0", "node2.memory", "node2.nic1", "gpu20.port"])
def test_a_slow_link_of_the_last_node_is_seen_folded_as_rank_by_rank(link: str) -> None:
    slow = {"straggler": [{"link": link, "factor": 20.0}]}
    setup = kind.set_up(kind.load("llama2-7b-offload", AWAY | slow))
    folded, every = (kind.answer(setup, unfold=unfold) for unfold in (False, True))
    assert folded.get("step_time") == pytest.approx(every.get("step_time"), rel=1e-9)
    healthy = kind.answer(kind.set_up(kind.load("llama2-7b-offload", AWAY)))
    assert folded.get("step_time") >= healthy.get("step_time")
