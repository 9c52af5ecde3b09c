"""Recipes of NeMo and Megatron-Bridge, nanotron's YAML: there and back, and what is refused."""

from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.config.errors import InputError
from sim.config.schema import validate
from sim.interface.frameworks import documents
from sim.interface.frameworks.jobs import FRAMEWORKS, Imported, emitted, imported
from sim.interface.frameworks.names import NAMES
from sim.model.counts import parameters
from sim.model.reading import load, model_of
from sim.parallel.plan import Plan
from sim.parallel.resolved import resolved

FILES = Path(__file__).parent / "files"
RECIPES = ("megatron-bridge", "nemo")


def of_file(framework: str, *changes: tuple[str, str]) -> Imported:
    text = (FILES / f"{framework}.yaml").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return imported(framework, text)


def test_every_framework_has_a_name() -> None:
    assert tuple(FRAMEWORKS) == NAMES


def test_a_config_container_is_deepseek_v3_on_its_layout() -> None:
    job = of_file("megatron-bridge")
    model, ours = model_of(job.model, "file"), load("deepseek-v3")
    assert parameters(model) == parameters(ours)
    assert (model.kinds, model.latent, model.mtp) == (ours.kinds, ours.latent, ours.mtp)
    plan = validate(job.plan, Plan, "plan")
    assert (plan.tp, plan.pp, plan.ep, plan.etp, plan.interleave) == (2, 8, 64, 1, 2)
    assert (plan.microbatch, plan.global_batch, plan.zero) == (1, 16384, 1)
    assert (plan.precision, plan.recipe, plan.moments) == ("fp8", "blockwise", "bf16")
    assert (plan.dispatcher, plan.recompute) == ("hierarchical", ("mla_up_proj", "mlp"))
    assert (plan.overlap_shared, plan.tp_comm_overlap, plan.grad_reduce_in_fp32) == (False,) * 3
    assert (job.stack, job.unknown) == ("megatron-bridge", ())
    assert job.changes == {"overlap_gradients": False, "overlap_gather": True}


def test_a_recipe_lays_out_its_stages() -> None:
    layout = "Et*3|(tt|)*13m|L"
    job = of_file(
        "megatron-bridge",
        ("pipeline_model_parallel_layout: null", f"pipeline_model_parallel_layout: {layout}"),
        ("num_layers: 61", "num_layers: 29"), ("virtual_pipeline_model_parallel_size: 2", ""),
    )  # fmt: skip
    assert (job.plan["layers"], job.plan["interleave"]) == ([3, *[2] * 13, 0, 0], 2)


def test_a_recipe_of_nemo_names_its_model_by_a_class() -> None:
    job = of_file("nemo")
    assert job.model == {"like": "llama3-8b", "seq": 8192}
    assert (job.gpus, job.called, job.unknown, job.notes) == (16, "Llama3Config8B", (), ())
    plan = validate(job.plan, Plan, "plan")
    assert (plan.tp, plan.cp, plan.zero, plan.sequence_parallel) == (2, 2, 1, True)
    assert (plan.precision, plan.recipe) == ("fp8", "current-scaling")
    assert (plan.recompute, plan.recompute_method) == ("full", None)
    assert (plan.tp_comm_overlap, plan.grad_reduce_in_fp32) == (True, False)


def test_a_config_of_nanotron_says_all_of_its_job() -> None:
    job = of_file("nanotron")
    assert parameters(model_of(job.model, "file")) == parameters(load("llama3-8b"))
    plan = resolved(validate(job.plan, Plan, "plan"), job.gpus)
    assert (job.gpus, plan.tp, plan.pp, plan.dp, plan.zero) == (16, 2, 2, 4, 1)
    assert (plan.global_batch, plan.microbatch, plan.microbatches) == (64, 2, 8)
    assert (plan.recompute, plan.schedule, plan.sequence_parallel) == ("full", "1f1b", True)
    assert (job.unknown, job.changes) == ((), {})


def test_changes_of_a_recipe_are_a_command_line() -> None:
    job = imported(
        "megatron-bridge",
        "torchrun --nproc_per_node 8 run_recipe.py --recipe llama31_405b_pretrain_config \\\n"
        " model.pipeline_model_parallel_size=4 ++train.global_batch_size=64 model.wild_thing=3 \\\n"
        " 'model.recompute_modules=[mlp, core_attn]' model.recompute_granularity=selective \\\n"
        " model.seq_length=4096 model.attention_dropout=0.1 logger.log_interval=1",
    )
    assert job.model == {"like": "llama3-405b", "seq": 4096}  # one rate of two is no change
    assert (job.plan["pp"], job.plan["recompute"]) == (4, ["mlp", "core_attn"])
    assert "tp" not in job.plan
    assert (job.unknown, job.gpus) == (("model.wild_thing",), 8)
    assert "llama31_405b_pretrain_config, except its model" in job.notes[0]


@pytest.mark.parametrize("framework", RECIPES)
@pytest.mark.parametrize("name", ["gpt3-175b", "llama3-70b", "deepseek-v3", "mixtral-8x7b"])
def test_a_model_comes_back_as_it_went(framework: str, name: str) -> None:
    model = load(name)
    back = model_of(
        imported(framework, emitted(framework, model, Plan(global_batch=8))[0]).model, ""
    )
    assert parameters(back) == parameters(model)
    for one in fields(model):
        if one.name not in {"name", "blocks"}:  # shared experts come back as one of their width
            assert getattr(back, one.name) == getattr(model, one.name), one.name


@pytest.mark.parametrize("framework", [*RECIPES, "nanotron"])
@given(
    tp=st.sampled_from([1, 2, 8]),
    pp=st.sampled_from([1, 4]),
    zero=st.integers(0, 1),
    recompute=st.sampled_from(["none", "full"]),
    precision=st.sampled_from(["bf16", "fp16"]),
    microbatch=st.integers(1, 2),
)
def test_a_layout_comes_back_as_it_went(
    framework, tp, pp, zero, recompute, precision, microbatch
) -> None:
    plan = Plan(global_batch=64, microbatch=microbatch, tp=tp, pp=pp, dp=4, zero=zero,
                recompute=recompute, precision=precision, sequence_parallel=tp > 1)  # fmt: skip
    read = imported(framework, emitted(framework, load("llama3-8b"), plan)[0])
    back = validate(read.plan, Plan, "plan")
    for one in ("tp", "pp", "zero", "recompute", "precision", "microbatch", "global_batch",
                "sequence_parallel", "schedule"):  # fmt: skip
        assert getattr(back, one) == getattr(plan, one), one
    assert read.unknown == ()


@pytest.mark.parametrize("framework", RECIPES)
@pytest.mark.parametrize("recipe", ["delayed-scaling", "blockwise", "mxfp8", "nvfp4"])
def test_low_precisions_have_names(framework: str, recipe: str) -> None:
    precision = "fp4" if recipe == "nvfp4" else "fp8"
    plan = Plan(global_batch=64, pp=4, interleave=2, schedule="interleaved", dispatcher=None,
                precision=precision, recipe=recipe, recompute=("mlp",))  # fmt: skip
    back = imported(framework, emitted(framework, load("llama3-8b"), plan)[0]).plan
    assert (back["precision"], back["recipe"]) == (precision, recipe)
    assert (back["interleave"], back["recompute"]) == (2, ["mlp"])


def test_adapters_are_lora() -> None:
    lora = """peft:
  _target_: megatron.bridge.peft.lora.LoRA
  dim: 16
  alpha: 32
  target_modules: [linear_qkv]"""
    job = of_file("megatron-bridge", ("peft: null", lora))
    plan = validate(job.plan, Plan, "plan")
    assert plan.lora is not None
    assert (plan.lora.rank, plan.lora.modules) == (16, ("linear_qkv",))
    assert job.unknown == ()
    with pytest.raises(InputError, match="'DoRA' is not known; known: LoRA"):
        of_file("megatron-bridge", ("peft: null", lora.replace("LoRA", "DoRA")))


@pytest.mark.parametrize(
    ("framework", "changes", "unknown"),
    [
        ("megatron-bridge", ("window_attn_skip_freq: null", "window_attn_skip_freq: 2"),
         "model.window_attn_skip_freq"),
        ("megatron-bridge", ("\nft: null", "\nsurprise:\n  level: 3"), "surprise.level"),
        ("megatron-bridge", ("mtp_loss_scaling_factor: 0.1",
         "num_layers_in_first_pipeline_stage: 4"), "model.num_layers_in_first_pipeline_stage"),
        ("nemo", ("max_steps: 10000", "max_steps: 10000\n  strategy_of_mine: {a: 3}"),
         "trainer.strategy_of_mine.a"),
        ("nanotron", ("hidden_act: silu", "sliding_window_size: 20"),
         "model.model_config.sliding_window_size"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_listed(framework, changes, unknown) -> None:
    assert of_file(framework, changes).unknown == (unknown,)


@pytest.mark.parametrize(
    ("framework", "text", "words"),
    [
        ("megatron-bridge", "model.hidden_size=4", "argument num-layers is missing"),
        ("megatron-bridge", "--recipe llama3_8b model.tensor_model_parallel_size=2",
         "global_batch_size is missing"),
        ("megatron-bridge", "--recipe llama3_8b mixed_precision=bf16_wild",
         "'bf16_wild' is not known"),
        ("nemo", "--factory llama3_8b data.global_batch_size=many", "'many' is no whole number"),
        ("nanotron", "model: {model_config: {num_hidden_layers: 2}}", "is_llama_config"),
        ("nanotron", "model: {model_config: {num_hidden_layers: 2, moe_config: {num_experts: 8}}}",
         "moe_config: is not known"),
        ("nanotron", "model: [", "is not valid YAML"),
        ("nanotron", "- a", "is no table of settings"),
        ("nanotron", "", "is no table of settings"),
        ("nanotron", "a: 1\na: 2", "has 'a' twice"),
        ("nanotron", "a: !!python/object/apply:os.system ['true']", "is not valid YAML"),
        ("nanotron", "a: " + "[" * 40 + "]" * 40, "is nested more than 32 deep"),
        ("nanotron", "a: " + "[" * 2000 + "]" * 2000, "is nested more than 32 deep"),
        ("nanotron", "a: &a [*a]", "is nested more than 32 deep"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(framework: str, text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        imported(framework, text)


def test_aliases_of_aliases_are_no_bomb() -> None:
    levels = [f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 10)}]" for i in range(1, 12)]
    with pytest.raises(InputError, match="has more than 100,000 values"):
        documents.parsed("\n".join(["l0: &l0 1", *levels]))


@pytest.mark.parametrize(
    ("framework", "model", "plan", "words"),
    [
        ("nanotron", "gpt3-175b", {}, "no such gated_mlp"),
        ("nanotron", "deepseek-v3", {}, "no such layers of experts"),
        ("nanotron", "llama3-8b", {"zero": 3}, "take 0 or 1"),
        ("nanotron", "llama3-8b", {"precision": "fp8"}, "stands for 'fp8'"),
        ("nanotron", "llama3-8b", {"recompute": ("mlp",)}, "nanotron has no"),
        ("nanotron", "llama3-8b", {"pp": 2, "schedule": "zb-h1"}, "stands for 'zb-h1'"),
        ("megatron-bridge", "llama3-8b", {"precision": "fp32"}, "has no name there"),
        ("nemo", "gpt-oss-120b", {}, "layers of kind sliding"),
    ],
)
def test_what_a_framework_does_not_have_is_not_written(framework, model, plan, words) -> None:
    with pytest.raises(InputError, match=words):
        emitted(framework, load(model), Plan(global_batch=64, dp=4, **plan))
