"""What links carry: laws, and the same as the rates over time add up to."""

import numpy as np
import pytest

from sim import run
from sim.engine.timeline import Timeline
from sim.kind import load

DDP = {"gpus": 8, "plan.dp": 8, "plan.microbatch": 12}


def test_ddp_sends_its_gradients_once_a_step_however_many_microbatches_it_has() -> None:
    few, many = (run(load("gpt2-one-gpu", DDP | {"plan.global_batch": 96 * n})) for n in (1, 5))
    sent = [{load.name: load.bytes for load in result.links} for result in (few, many)]
    assert sent[0].keys() == {"port-up 0", "port-down 0"}
    assert sent[0]["port-up 0"] == sent[0]["port-down 0"] == pytest.approx(sent[1]["port-up 0"])
    assert few.links[0].busy > 2.0 * many.links[0].busy


@pytest.mark.parametrize("name", ["megatron-3.6b", "llama2-7b-offload", "bert-large-tpu-v2"])
def test_links_carry_what_their_rates_add_up_to_and_never_more_than_they_can(name: str) -> None:
    result = run(name)
    over_time = _added_up(result.timeline)
    found = {load.name: load for load in result.links}
    assert over_time
    for link, size in over_time.items():
        assert found[link].bytes == pytest.approx(size, rel=1e-6)
        assert found[link].busy <= 1.0 + 1e-9


def _added_up(timeline: Timeline) -> dict[str, float]:
    """Bytes by link: its rate integrated over the step."""
    return {
        rate.of.partition(" (")[0]: float(np.sum(rate.values[:-1] * np.diff(rate.times)))
        for rate in timeline.rates
        if rate.unit == "B/s"
    }


def test_a_step_without_anybody_to_talk_to_loads_nothing() -> None:
    assert not list(run("gpt2-one-gpu").links)
