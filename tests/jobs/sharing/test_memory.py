"""What workers, GPU 0 and servers hold, and that what does not fit is said."""

import pytest

import sim
from sim import run
from sim.jobs.sharing.setup import assemble
from tests.jobs.sharing.pools import SIZE, hosts, outcome, plan, work

ELEMENTS = SIZE / 4


def parts(scenario: str, **settings: object) -> dict[str, dict[str, float]]:
    keys = {"sharing.steps": 2, "sharing.straggler": []} | settings
    return {one["name"]: one["parts"] for one in run(sim.load(scenario, keys)).memory}


def test_gpt3_as_plain_data_parallelism_on_v100s_does_not_fit():
    result = run(sim.load("all-reduce-ddp", {"model": "gpt3-175b", "sharing.steps": 1}))
    assert not result.fits
    assert result.warnings[0].endswith("it would not run")
    assert result.memory[0]["total"] > 175e9 * 16  # weights, gradients and a momentum in fp32


def test_resnet_on_a_v100_fits_and_says_so():
    result = run(sim.load("all-reduce-ddp", {"sharing.steps": 1}))
    assert result.fits
    assert "a worker's fullest GPU" in str(result)


def test_where_servers_update_workers_have_no_optimizer():
    worker = parts("all-reduce-ddp")["a worker's fullest GPU"]
    served = parts("ps-async")["a worker's fullest GPU"]
    assert worker["optimizer"] > 4 * 25e6
    assert "optimizer" not in served
    assert served["weights"] == worker["weights"]


def test_gpu_0_of_data_parallel_alone_has_the_optimizer_and_everybodys_inputs():
    held = parts("data-parallel")
    assert "optimizer" not in held["a worker's fullest GPU"]
    assert held["GPU 0"]["optimizer"] > 4 * 25e6
    assert held["GPU 0"]["inputs of all"] == 8 * 32 * 3 * 224**2 * 4


def test_gpu_0_of_data_parallel_has_everybodys_outputs_and_the_loss_of_them():
    """A thousand classes in fp32; of a language model it is what does not fit first."""
    held = parts("data-parallel")["GPU 0"]
    assert held["outputs of all"] == 8 * 32 * 1000 * 4
    assert held["loss of the others"] == 2 * 7 * 32 * 1000 * 4
    words = parts("data-parallel", model="gpt2-124m", **{"sharing.batch": 4})["GPU 0"]
    assert words["outputs of all"] == 8 * 4 * 1024 * 50257 * 4
    assert max(words, key=words.__getitem__) == "loss of the others"


@pytest.mark.parametrize("shards", [1, 2])
def test_a_server_has_its_share_and_a_message_of_every_worker(shards):
    held = outcome("parameter_server", shards=shards, steps=1).memory[0]["parts"]
    own = SIZE / shards
    assert held == pytest.approx({"weights": own, "optimizer": own, "messages": 4 * own})


def test_methods_keep_weights_beside_a_step():
    assert plan("gossip").kept(ELEMENTS, 4.0, 8) == {"neighbours' weights": 2 * SIZE}
    assert (
        plan("gossip", graph="complete").kept(ELEMENTS, 4.0, 8)["neighbours' weights"] == 7 * SIZE
    )
    diloco = plan("local_sgd", outer_momentum=0.9, nesterov=True)
    assert diloco.kept(ELEMENTS, 4.0, 8) == {"outer state": 2 * SIZE}
    assert plan("local_sgd").kept(ELEMENTS, 4.0, 8) == {"outer state": SIZE}


def test_times_that_were_measured_say_nothing_of_memory():
    assert outcome("all_reduce", steps=1).memory == ()
    assert assemble(plan("all_reduce"), hosts(), work()).workloads[0].held == {}
