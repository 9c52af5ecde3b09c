"""What is made in Python is validated as a file is, and told in the same words."""

from dataclasses import replace

import numpy as np
import pytest

import sim
from sim.config import catalog
from sim.config.checked import replaced
from sim.hardware.cluster import topology
from sim.model import reading
from sim.model.lora import Lora
from sim.scenario.settings import FILES, flat, head_of

PLAN = {"global_batch": 64, "tp": 2}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"tp": 0}, "tp = 0: input should be greater than or equal to 1; set tp at least 1"),
        ({"tp": "4"}, 'tp = "4" is not a whole number; write tp = 4'),
        ({"tp": 2.0}, "tp = 2.0 is not a whole number; write tp = 2"),
        ({"microbatch": True}, "microbatch = true is not a whole number"),
        ({"interleave": 2000}, "set interleave at most 1000"),
        ({"precision": "bf61"}, "did you mean 'bf16'?"),
        ({"axes": {"ulysses": 0}}, "set ulysses at least 1"),
        ({"layers": [4, "a"]}, 'layers = "a" is not a whole number'),
        ({"offload": {"optimiser": 1.0}}, "did you mean 'optimizer'?"),
    ],
)
def test_a_plan_is_refused_where_it_is_made(values: dict[str, object], said: str) -> None:
    with pytest.raises(sim.InputError, match=r"^Plan") as error:
        sim.Plan(**{"global_batch": 64, **values})  # type: ignore[arg-type]
    assert said in str(error.value)
    with pytest.raises(sim.InputError):
        replace(sim.Plan(global_batch=64), **values)  # type: ignore[arg-type]


def test_a_copy_of_which_only_the_changes_are_looked_at_is_like_any_other() -> None:
    plan = sim.Plan(global_batch=64, tp=2)
    assert plan.data_parallel == 1  # what is remembered is not handed on
    for values in ({"dp": 4}, {"layers": [4, 4]}, {"offload": {"optimizer": 0.5}}):
        assert replaced(plan, **values) == replace(plan, **values)  # type: ignore[arg-type]
    with pytest.raises(sim.InputError, match='Plan: tp = "4" is not a whole number'):
        replaced(plan, tp="4")
    assert replaced(plan, dp=4).data_parallel == 4


def test_values_are_those_that_a_file_would_give() -> None:
    plan = sim.Plan(global_batch=np.int64(64), layers=[4, 4], lora={"rank": 8})  # type: ignore[arg-type]
    assert plan == sim.Plan(global_batch=64, layers=(4, 4), lora=Lora(rank=8))
    assert type(plan.global_batch) is int


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"model": 3}, "model = 3 is not a text"),
        ({"plan": {"tp": 4}}, "global_batch is missing"),
        ({"gpus": 0}, "gpus = 0"),
        ({"straggler": [{"rank": 1, "factor": 0}]}, "factor = 0"),
    ],
)
def test_a_scenario_is_refused_where_it_is_made(values: dict[str, object], said: str) -> None:
    given = {"model": "llama3-8b", "topology": "dgx-h100-ndr", "plan": PLAN, **values}
    with pytest.raises(sim.InputError) as error:
        sim.Scenario(**given)  # type: ignore[arg-type]
    assert said in str(error.value)


def test_objects_and_names_are_one_scenario() -> None:
    changes = {"network.bandwidth": "100 Gb/s", "model.seq": 4096, "device.memory": "40 GiB"}
    named = sim.Scenario(
        model="llama3-8b", topology="dgx-h100-ndr", plan=sim.Plan(**PLAN), gpus=16, change=changes
    )
    model, cluster = reading.load("llama3-8b"), topology.load("dgx-h100-ndr")
    made = replace(named, model=model, topology=cluster, plan=PLAN)  # type: ignore[arg-type]
    one, other = sim.run(named), sim.run(made)
    assert (one.step_time, one.memory_per_gpu) == (other.step_time, other.memory_per_gpu)


def test_settings_mean_the_same_for_an_object_and_a_name() -> None:
    settings = {"plan.tp": 4, "network.bandwidth": "100 Gb/s", "jitter": None}
    loaded = sim.load("gpt3-175b-megatron")
    assert sim.load(loaded, settings) == sim.load("gpt3-175b-megatron", settings)
    for wrong in ("plan.tpp=3", "tp=4", "network.bandwith=3", "device.name=a"):
        said = []
        for given in (loaded, "gpt3-175b-megatron"):
            with pytest.raises(sim.InputError) as error:
                sim.run(sim.load(given, wrong))
            said.append(error.value.remedy)
        assert said[0] == said[1]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("gpt3-175b-megatron", {"plan.schedule": "1f1b"}),
        ("gpt3-175b-megatron", {"plan.schedule": "interleaved-zero-bubble"}),
        ("local-sgd", {"sharing.method": "gossip"}),
        ("local-sgd", {"sharing.learning.scaling": "linear", "network.nics": 1}),
    ],
)
def test_a_choice_leaves_behind_the_same_keys_of_an_object_and_of_a_name(
    name: str, settings: dict[str, object]
) -> None:
    found = sim.load(sim.load(name), settings)
    assert found == sim.load(name, settings)
    assert found != sim.load(name)


SCENARIOS = (
    "gpt3-175b-megatron", "ps-async", "diloco-70b", "qwen3-32b-answers", "async-rl-32b",
    "month-of-jobs", "two-jobs-one-network", "gpt2-1.5b-workers",
)  # fmt: skip


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_value_of_a_file_that_is_set_once_more_changes_nothing(name: str) -> None:
    found = sim.load(name)
    for key, value in flat(catalog.document("scenarios", catalog.find("scenarios", name))):
        if head_of(key) not in (*FILES, "change"):
            assert sim.load(found, {key: value}) == found, key
            assert sim.load(name, {key: value}) == found, key
