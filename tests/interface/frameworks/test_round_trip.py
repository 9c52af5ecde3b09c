"""What a framework is told of a job, read again, is that job: all of our scenarios', in every
framework that has words for them; the rest is refused in one line, or named."""

import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

import sim
from sim.config.errors import InputError
from sim.config.schema import validate
from sim.interface.frameworks.jobs import FRAMEWORKS, emitted, imported
from sim.model.counts import parameters
from sim.model.reading import load, model_of
from sim.model.transformer import Transformer
from sim.parallel.plan import Plan
from sim.parallel.resolved import resolved
from sim.scenario.setup import PlanSetup, from_scenario

SCENARIOS = sorted(
    path.stem
    for path in (Path(__file__).parents[3] / "scenarios").glob("*.toml")
    if not {"sharing", "record", "job", "generation", "reinforcement"}
    & tomllib.loads(path.read_text()).keys()
)
# What is said aloud where a plan leaves it to the stack: of a recipe, of the sharding's own way.
SAID = {
    "tp_comm_overlap": [(False, None)],
    "grad_reduce_in_fp32": [(True, None)],
    "recipe": [("current-scaling", "")],
    "no_sync": [(None, False)],
}


def setup_of(name: str) -> tuple[PlanSetup, str]:
    scenario = sim.load(name)
    return from_scenario(scenario), str(scenario.model)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_comes_back_as_it_went(framework: str, name: str) -> None:
    setup, like = setup_of(name)
    plan, gpus = setup.job.plan, setup.machine.topology.gpus
    try:
        text, unsaid = emitted(framework, setup.job.model, plan, like)
    except InputError:
        return
    if any(one.startswith("the model,") for one in unsaid):
        with pytest.raises(InputError, match=r"model\.name is missing"):
            imported(framework, text, gpus)
        return
    read = imported(framework, text, gpus)
    assert read.unknown == ()
    back = resolved(validate(read.plan, Plan, "plan"), gpus)
    left = {one.partition(" ")[0] for one in unsaid}
    left |= {"dp"} if "dp_replicate" in left else set()
    for one in fields(Plan):
        own, now = getattr(plan, one.name), getattr(back, one.name)
        if one.name not in left and (now, own) not in SAID.get(one.name, []):
            assert now == own, one.name
    if read.model.get("layers") and not left & {one.name for one in fields(Transformer)}:
        assert parameters(model_of(read.model, name)) == parameters(setup.job.model)


def test_constants_of_a_model_are_told_too(tmp_path: Path) -> None:
    """rope_theta and the norms' epsilon change no time, but a model trained without them is
    another one."""
    config = tmp_path / "config.json"
    config.write_text(
        '{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "vocab_size": 128,'
        '"num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 2048,'
        '"tie_word_embeddings": false, "rope_theta": 500000.0, "rms_norm_eps": 1e-06,'
        '"rope_scaling": {"rope_type": "llama3", "factor": 32.0}}'
    )
    model = load(str(config))
    for framework, said in {
        "megatron": ("--rotary-base 500000\n", "--norm-epsilon 1e-06", "--use-rope-scaling",
                     "--rope-scaling-factor 32\n"),
        "megatron-bridge": ("model.rotary_base=500000\n", "model.layernorm_epsilon=1e-06"),
        "nanotron": ("rope_theta: 500000\n", "rms_norm_eps: 1"),
    }.items():  # fmt: skip
        text, unsaid = emitted(framework, model, Plan(global_batch=8, dp=1))
        assert all(word in text for word in said), text
        assert unsaid == (["rope_llama3 = 32.0"] if framework == "nanotron" else [])
        back = model_of(imported(framework, text).model, "").numerics
        assert (back.rope_theta, back.norm_epsilon) == (500000.0, 1e-6)


def test_a_pipeline_of_one_stage_is_said_where_it_has_to_be() -> None:
    """nanotron's ParallelismArgs has no default for dp, pp and tp."""
    text, _ = emitted("nanotron", load("llama3-8b"), Plan(global_batch=8, dp=8))
    assert {"  dp: 8", "  pp: 1", "  tp: 1"} <= set(text.splitlines())


def test_megatron_gathers_parameters_beside_passes_only_where_they_are_sharded() -> None:
    """Its validate_args refuses --overlap-param-gather without a distributed optimizer."""
    for zero in (0, 1):
        text, _ = emitted("megatron", load("llama3-8b"), Plan(global_batch=8, dp=8, zero=zero))
        assert ("--overlap-param-gather" in text) == ("--use-distributed-optimizer" in text)
        assert "--overlap-grad-reduce" in text


def test_what_a_framework_cannot_be_told_is_refused_before_a_layout_is_looked_for(monkeypatch):
    def search(*_: object, **__: object) -> None:
        raise AssertionError("searched")

    monkeypatch.setattr("sim.analysis.search.plan.search", search)
    ask = {"global_batch": 64, "gpus": 8}
    with pytest.raises(InputError, match="layers of kind decoder"):
        sim.plan("t5-11b", "dgx-h100-ndr", framework="megatron", **ask)
    with pytest.raises(InputError, match="torchtitan has no ZeRO-1"):
        sim.plan("llama3-8b", "dgx-h100-ndr", framework="torchtitan", only=("zero=1,3",), **ask)
    with pytest.raises(AssertionError, match="searched"):
        sim.plan("llama3-8b", "dgx-h100-ndr", framework="torchtitan", **ask)
