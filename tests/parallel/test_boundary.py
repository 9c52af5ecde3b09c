"""What passes between pipeline stages: cut, and compressed where the plan says so."""

from dataclasses import replace

import pytest

import sim
from sim.config.errors import InputError
from sim.parallel.pipeline_p2p import boundary_bytes, sent_bytes
from sim.scenario.setup import from_scenario

SIZES = {"plan.pp": 4, "plan.tp": 2, "plan.dp": 2, "gpus": 16, "plan.global_batch": 64}


def job(**activations: object):
    settings = {**SIZES, **({"plan.activations": activations} if activations else {})}
    return sim.load("megatron-3.6b", settings)


@pytest.mark.parametrize(
    ("changes", "cut"),
    [
        ({"stack.scatter_gather": False}, 1),
        # Each of the tensor-parallel peers sends a share (Narayanan et al. 2021, section 4.1).
        ({"stack.scatter_gather": True}, 2),
        ({"stack.scatter_gather": False, "plan.sequence_parallel": True}, 2),
        (
            {"stack.scatter_gather": False, "plan.dp": 1, "plan.cp": 2, "model.attention": "flash"},
            2,
        ),
    ],
)
def test_a_message_is_a_microbatch_of_activations_cut_over_who_shares_it(changes, cut):
    own = from_scenario(sim.load("megatron-3.6b", {**SIZES, **changes})).job
    whole = own.plan.microbatch * own.model.seq * own.model.hidden * 2
    assert boundary_bytes(own) == whole / cut


def test_what_crosses_the_boundary_shrinks_by_the_codes_share():
    whole = from_scenario(job()).job
    assert sent_bytes(whole) == boundary_bytes(whole)
    coded = from_scenario(job(kind="int8")).job
    assert sent_bytes(coded) == pytest.approx(boundary_bytes(coded) / 2, rel=1e-3)


def test_coding_takes_time_of_its_own_and_pays_on_a_slow_network():
    plain, coded = sim.run(job()), sim.run(job(kind="int8"))
    assert coded.breakdown["compression"] > 0.0
    assert sum(coded.breakdown.values()) == pytest.approx(coded.step_time, rel=1e-9)
    assert coded.step_time == pytest.approx(plain.step_time, rel=0.01)  # there it hardly matters
    slow = {"network.bandwidth": "1 Gb/s"}
    plain, coded = (sim.run(replace(own, change=slow)) for own in (job(), job(kind="int8")))
    assert coded.step_time < 0.9 * plain.step_time


def test_an_unknown_code_is_a_mistake():
    with pytest.raises(InputError, match="kind"):
        job(kind="int9")
