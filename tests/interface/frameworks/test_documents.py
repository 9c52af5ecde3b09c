"""torchtitan's TOML and DeepSpeed's JSON: jobs there and back, and what is refused."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from sim.config.errors import InputError
from sim.config.schema import validate
from sim.interface.cli.main import main
from sim.interface.frameworks import jobs
from sim.interface.frameworks.documents import flattened, nested
from sim.interface.frameworks.jobs import imported
from sim.model.reading import load
from sim.model.transformer import Transformer
from sim.parallel.plan import Offload, Plan
from sim.parallel.resolved import resolved

LLAMA = load("llama3-8b")


def emitted(framework: str, model: Transformer, plan: Plan, like: str = "") -> str:
    return jobs.emitted(framework, model, plan, like)[0]


TITAN = """
[job]
description = "Llama 3 8B training"
[model]
name = "llama3"
flavor = "8B"
[optimizer]
name = "AdamW"
lr = 3e-4
[training]
local_batch_size = 1
seq_len = 8192
steps = 1000
[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = 2
[activation_checkpoint]
mode = "selective"
selective_ac_option = "op"
"""

ZERO = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 2,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},
    "gradient_clipping": 1.0,
}


def test_a_config_of_torchtitan_is_fsdp_with_sequences_divided() -> None:
    job = imported("torchtitan", TITAN, 16)
    assert job.model == {"like": "llama3-8b", "seq": 8192}
    plan = resolved(validate(job.plan, Plan, "plan"), 16)
    assert (plan.zero, plan.tp, plan.dp, plan.sequence_parallel) == (3, 2, 8, True)
    assert (plan.global_batch, plan.microbatch, plan.recompute) == (8, 1, "selective")
    assert job.unknown == ()
    assert job.silent == 3  # job.description, optimizer.lr, training.steps


@given(
    tp=st.sampled_from([1, 2, 8]),
    pp=st.sampled_from([1, 4]),
    zero=st.sampled_from([0, 3]),
    replicas=st.sampled_from([1, 2]),
    recompute=st.sampled_from(["none", "selective", "full"]),
    schedule=st.sampled_from(["1f1b", "interleaved", "zb-v", "gpipe"]),
    precision=st.sampled_from(["bf16", "fp8"]),
)
def test_a_layout_comes_back_from_torchtitan(
    tp, pp, zero, replicas, recompute, schedule, precision
) -> None:
    plan = Plan(
        global_batch=64, tp=tp, pp=pp, dp=4, zero=zero, dp_replicate=replicas if zero else 1,
        recompute=recompute, sequence_parallel=tp > 1, precision=precision,
        schedule=schedule if pp > 1 else "1f1b", microbatch=2,
    )  # fmt: skip
    back = validate(
        imported("torchtitan", emitted("torchtitan", LLAMA, plan, "llama3-8b")).plan, Plan, "plan"
    )
    for one in ("tp", "pp", "dp", "zero", "dp_replicate", "recompute", "schedule", "precision",
                "microbatch", "global_batch", "sequence_parallel"):  # fmt: skip
        assert getattr(back, one) == getattr(plan, one), one


def test_every_second_layer_again_is_an_option_of_torchtitan() -> None:
    plan = Plan(global_batch=8, dp=8, recompute="full", recompute_method="every",
                recompute_layers=2, zero=3)  # fmt: skip
    back = imported("torchtitan", emitted("torchtitan", LLAMA, plan, "llama3-8b")).plan
    assert (back["recompute"], back["recompute_method"], back["recompute_layers"]) == (
        "full", "every", 2,
    )  # fmt: skip


def test_deepspeeds_json_says_how_a_job_is_sharded() -> None:
    job = imported("deepspeed", json.dumps(ZERO), 16)
    plan = validate(job.plan, Plan, "plan")
    assert (plan.zero, plan.microbatch, plan.global_batch) == (3, 4, 4 * 2 * 16)
    assert plan.offload == Offload(optimizer=1.0)
    assert (job.model, job.unknown) == ({}, ())


def test_a_second_partition_of_deepspeed_is_an_axis() -> None:
    near = {"train_batch_size": 64, "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}}
    job = imported("deepspeed", json.dumps(near), 16)
    plan = validate(job.plan, Plan, "plan")
    assert (plan.dp, plan.axes, plan.reshard) == (8, {"dp_hpz": 2}, "near")
    back = imported("deepspeed", emitted("deepspeed", LLAMA, plan), 16)
    assert validate(back.plan, Plan, "plan") == plan


@given(
    zero=st.integers(0, 3),
    microbatch=st.sampled_from([1, 2]),
    precision=st.sampled_from(["bf16", "fp16", "fp32"]),
    offload=st.sampled_from([Offload(), Offload(optimizer=1.0), Offload(optimizer=1.0, nvme=True)]),
)
def test_a_layout_comes_back_from_deepspeed(zero, microbatch, precision, offload) -> None:
    plan = Plan(global_batch=64, dp=8, zero=zero, microbatch=microbatch, precision=precision,
                offload=offload)  # fmt: skip
    back = imported("deepspeed", emitted("deepspeed", LLAMA, plan)).plan
    back = validate(back, Plan, "plan")
    for one in ("zero", "microbatch", "global_batch", "precision", "offload"):
        assert getattr(back, one) == getattr(plan, one), one


@pytest.mark.parametrize(
    ("framework", "text", "words"),
    [
        ("torchtitan", TITAN.replace("8B", "9B"), "llama3 9B is not known; did you mean"),
        ("torchtitan", TITAN.replace('"selective"', '"some"'), "'some' is not known"),
        ("torchtitan", "a = ", "is not valid TOML"),
        ("torchtitan", "a = 1", "argument model.name is missing"),
        ("torchtitan", TITAN, "training.global_batch_size and the number of GPUs are missing"),
        ("deepspeed", "{", "line 1: is not JSON"),
        ("deepspeed", "[]", "is no table of settings"),
        ("deepspeed", json.dumps(ZERO), "train_batch_size and the number of GPUs are missing"),
        ("deepspead", "{}", "did you mean 'deepspeed'"),
    ],
)
def test_what_cannot_be_read_is_refused(framework: str, text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        imported(framework, text)


NEAR = {"stage": 3, "zero_hpz_partition_size": 5}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"train_batch_size": 100}, "100 is not 4 at a time x 2 times x 16 GPUs; correct one"),
        ({"fp16": {"enabled": True}, "bf16": {"enabled": True}}, "bf16 is enabled, too"),
        ({"zero_optimization": NEAR}, "5 does not divide 16 GPUs"),
    ],
)
def test_a_deepspeed_config_that_contradicts_itself_is_refused(changes, words) -> None:
    with pytest.raises(InputError, match=words):
        imported("deepspeed", json.dumps(ZERO | changes), 16)


@pytest.mark.parametrize(
    ("framework", "plan", "words"),
    [
        ("torchtitan", Plan(global_batch=8, dp=8, zero=1), "torchtitan has no ZeRO-1"),
        ("torchtitan", Plan(global_batch=8, tp=2, dp=8), "divides sequences"),
        ("torchtitan", Plan(global_batch=8, pp=2, dp=4, schedule="zb-h2"), "stands for 'zb-h2'"),
        ("deepspeed", Plan(global_batch=8, tp=2, dp=8), "tp = 2 is not in DeepSpeed's JSON"),
        ("deepspeed", Plan(global_batch=8, dp=8, precision="fp8"), "DeepSpeed has no fp8"),
    ],
)
def test_what_a_framework_does_not_have_is_not_written(framework, plan, words) -> None:
    with pytest.raises(InputError, match=words):
        emitted(framework, LLAMA, plan, "llama3-8b")


def test_a_model_that_torchtitan_does_not_have_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its parallelism is told all the same."""
    own = (load("mixtral-8x7b"), Plan(global_batch=8, dp=8), "mixtral-8x7b")
    text, unsaid = jobs.emitted("torchtitan", *own)
    assert unsaid == ["the model, mixtral-8x7b: write its part by hand"]
    assert "data_parallel_replicate_degree = 8" in text
    with pytest.raises(InputError, match=r"model\.name is missing"):
        jobs.imported("torchtitan", text, 8)
    assert jobs.imported("torchtitan", text, 8, "mixtral-8x7b").plan["dp"] == 8
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.toml").write_text(text)
    words = ("import", "torchtitan", "job.toml", "--topology=dgx-h100-ndr", "--model=mixtral-8x7b")
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0
    assert "vocabulary" not in done.output  # which the named model says
    assert 'like = "mixtral-8x7b"' in (tmp_path / "models" / "job.toml").read_text()


def test_frameworks_whose_scripts_make_the_model_are_proposed_for_kinds_that_one_lacks() -> None:
    own = (load("t5-11b"), Plan(global_batch=8, dp=8), "t5-11b")
    with pytest.raises(InputError, match=r"layers of kind decoder.* emit deepspeed or accelerate"):
        jobs.emitted("megatron", *own)
    for framework in ("deepspeed", "accelerate"):
        assert jobs.emitted(framework, *own)[0]


def test_a_document_comes_back_from_its_words() -> None:
    document = {"a": {"b": 1, "c": True}, "d": "text", "e": [1, 2], "f": 2.5}
    assert nested(flattened(document)) == document
