"""Megatron-LM's arguments: a job there and back, scripts, and what is refused."""

import re
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.analysis.search.choices.named import parsed as parsed_choices
from sim.config.errors import InputError
from sim.config.schema import validate
from sim.config.silent import is_silent
from sim.hardware import stack as stacks
from sim.interface.frameworks.command_line import parsed
from sim.interface.frameworks.jobs import (
    FRAMEWORKS,
    Imported,
    emitted,
    imported,
    plan_table,
    searched,
)
from sim.interface.frameworks.names import NAMES
from sim.model.counts import parameters
from sim.model.fusion import Dispatcher
from sim.model.reading import load, model_of
from sim.model.transformer import Transformer
from sim.parallel.plan import Plan
from sim.parallel.resolved import lacking
from sim.parallel.schedule import entry


def given_to(model: Transformer, plan: Plan) -> str:
    return emitted("megatron", model, plan)[0]


def taken(text: str) -> Imported:
    return imported("megatron", text)


SCRIPT = """#!/bin/bash
TP=8
PP=${PP:-16}
NODES=128; GPUS_PER_NODE=8
SHAPE=(
    --num-layers 96
    --hidden-size 12288   # wide
    --num-attention-heads 96
    --seq-length 2048 --max-position-embeddings 2048
    --vocab-size 50257
)
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NODES pretrain_gpt.py ${SHAPE[@]} \\
    --micro-batch-size 1 --global-batch-size 1536 --lr 6.0e-5 --fp16 --wild-thing 3 \\
    --tensor-model-parallel-size ${TP} --pipeline-model-parallel-size $PP \\
    --sequence-parallel --use-distributed-optimizer
"""


def test_a_launch_script_is_gpt3_on_1024_gpus() -> None:
    job = taken(SCRIPT)
    assert job.gpus == 1024
    assert (job.plan["tp"], job.plan["pp"], job.plan["global_batch"]) == (8, 16, 1536)
    assert (job.plan["zero"], job.plan["precision"]) == (1, "fp16")
    model = model_of(job.model, "script")
    assert model.vocab == 51200  # padded to 128 times tp
    assert parameters(model) == parameters(load("gpt3-175b"))
    assert job.unknown == ("wild-thing",)
    assert job.changes == {"overlap_gradients": False, "overlap_gather": False}


@pytest.mark.parametrize(
    "name",
    ["gpt3-175b", "llama3-8b", "llama3-70b", "deepseek-v3", "mixtral-8x7b", "qwen3-30b-a3b"],
)
def test_a_model_comes_back_as_it_went(name: str) -> None:
    model = load(name)
    back = model_of(taken(given_to(model, Plan(global_batch=8))).model, name)
    assert parameters(back) == parameters(model)
    told = {"name", "blocks"}  # shared experts come back as one of their width
    for one in fields(model):
        if one.name not in told:
            assert getattr(back, one.name) == getattr(model, one.name), one.name


@given(
    tp=st.sampled_from([1, 2, 8]),
    pp=st.sampled_from([1, 4]),
    cp=st.sampled_from([1, 2]),
    interleave=st.sampled_from([1, 2, 5]),
    zero=st.integers(0, 3),
    recompute=st.sampled_from(["none", "selective", "full", ("mlp", "core_attn")]),
    precision=st.sampled_from(["bf16", "fp16", "fp32"]),
    microbatch=st.integers(1, 4),
    overlap=st.sampled_from([None, True]),
)
def test_a_layout_comes_back_as_it_went(
    tp, pp, cp, interleave, zero, recompute, precision, microbatch, overlap
) -> None:
    chunks = interleave if pp > 1 else 1
    plan = Plan(
        global_batch=64, microbatch=microbatch, tp=tp, pp=pp, cp=cp, zero=zero,
        interleave=chunks, schedule="interleaved" if chunks > 1 else "1f1b",
        recompute=recompute, precision=precision, sequence_parallel=tp > 1,
        tp_comm_overlap=overlap if tp > 1 else None,
    )  # fmt: skip
    read = taken(given_to(load("llama3-70b"), plan)).plan
    back = validate(read, Plan, "plan")
    for one in ("tp", "pp", "cp", "zero", "interleave", "precision", "microbatch", "schedule"):
        assert getattr(back, one) == getattr(plan, one), one
    assert back.sequence_parallel == plan.sequence_parallel
    assert back.tp_comm_overlap == plan.tp_comm_overlap
    names = [back.recompute] if isinstance(back.recompute, str) else [*back.recompute]
    assert names == ([recompute] if isinstance(recompute, str) else [*recompute])


@pytest.mark.parametrize("dispatcher", ["deepep", "hierarchical"])
def test_experts_keep_their_layout(dispatcher: Dispatcher) -> None:
    plan = Plan(
        global_batch=512, tp=2, pp=4, ep=8, etp=1, sequence_parallel=True,
        precision="fp8", recipe="blockwise", dispatcher=dispatcher, overlap_shared=True,
    )  # fmt: skip
    text = given_to(load("deepseek-v3"), plan)
    assert "--moe-layer-freq '([0]*3+[1]*58)'" in text
    back = validate(taken(text).plan, Plan, "plan")
    for one in ("ep", "etp", "precision", "recipe", "dispatcher", "overlap_shared"):
        assert getattr(back, one) == getattr(plan, one), one


def test_experts_are_divided_as_all_else_unless_said() -> None:
    shape = given_to(load("mixtral-8x7b"), Plan(global_batch=8, tp=4, etp=4))
    assert "expert-tensor-parallel-size" not in shape
    assert taken(shape).plan["etp"] == 4


@pytest.mark.parametrize(
    ("said", "pattern"),
    [("1", "experts"), ("2", "experts, 1 dense"), ("'([0]*1+[1]*2)'", "1 dense, 2 experts")],
)
def test_layers_with_experts_are_counted_or_listed(said: str, pattern: str) -> None:
    text = given_to(load("mixtral-8x7b"), Plan(global_batch=8)) + f" --moe-layer-freq {said}"
    assert taken(text).model["pattern"] == pattern


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ("--num-layers many", "'many' is no whole number"),
        ("--num-layers", "no value where one is needed"),
        ("--normalization BatchNorm", "'BatchNorm' is not known"),
        ("--recompute-granularity half", "'half' is not known"),
        ("--fp8-format hybrid --fp8-recipe wild", "fp8-recipe: 'wild' is not known"),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy all", "'all' is not known"),
        ("--num-experts 8 --moe-layer-freq [2]*3", "is not known; write a number, or a list"),
        ("--lr 'open", "is no shell script that can be read"),
    ],
)
def test_what_cannot_be_read_is_refused(changes: str, words: str) -> None:
    with pytest.raises(InputError, match=words.replace("[", r"\[").replace("*", r"\*")):
        imported("megatron", f"{given_to(load('llama3-8b'), Plan(global_batch=8))} {changes}")


@pytest.mark.parametrize(
    ("model", "plan", "words"),
    [
        ("llama3-8b", {"pp": 2, "schedule": "zb-h1"}, "Megatron-LM has no 'zb-h1'"),
        ("gpt-oss-120b", {}, "layers of kind sliding"),
        ("llama3-8b", {"precision": "tf32"}, "Megatron-LM has no tf32"),
    ],
)
def test_what_megatron_does_not_have_is_not_written(model: str, plan: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        given_to(load(model), Plan(global_batch=64, **plan))


def test_no_argument_is_known_twice_or_both_known_and_silent() -> None:
    for own in FRAMEWORKS.values():
        known = [*(name for entry in own.table for name in entry.arguments), *own.assumed]
        assert len(known) == len(set(known))
        assert not [name for name in known if is_silent(name, own.silent)]


def test_words_behind_an_argument_end_with_its_command() -> None:
    assert parsed("x --a 1 2 && y 3; z")["a"] == ("1", "2")
    with pytest.raises(InputError, match="no closing quotation"):
        parsed("--lr 'open")
    assert parsed("B=5; A=$B; x --a $A ${C:-7} '$D'")["a"] == ("5", "7", "$D")


def test_a_layout_is_a_table_of_a_scenario() -> None:
    assert plan_table(Plan(global_batch=64, tp=2, recompute=("mlp",))).splitlines() == [
        "[plan]", "global_batch = 64", "tp = 2", "recompute = [", '    "mlp",', "]",
    ]  # fmt: skip


def test_what_no_argument_says_is_named() -> None:
    plan = Plan(global_batch=64, zero=3, prefetch=2, dp=8, moments="bf16")
    for framework in ("megatron", "torchtitan", "deepspeed"):
        _, unsaid = emitted(framework, load("llama3-8b"), plan, "llama3-8b")
        assert unsaid == ["prefetch = 2", "moments = bf16"], framework
    assert emitted("megatron", load("llama3-8b"), Plan(global_batch=64, tp=2))[1] == []


@pytest.mark.parametrize(
    ("text", "stages", "layers", "chunks"),
    [
        ("Et*3|(tt|)*29,m|L", 16, [3, *[2] * 29, 0, 0], 2),  # DeepSeek-V3, its documentation
        ("Ett|ttL", 2, [2, 2], 1),
        ("E|t|t|L", 4, [0, 1, 1, 0], 1),
    ],
)
def test_layers_of_stages_are_a_text(text: str, stages: int, layers: list, chunks: int) -> None:
    shape = given_to(load("deepseek-v3"), Plan(global_batch=8, pp=stages))
    plan = taken(f"{shape} --pipeline-model-parallel-layout '{text}'").plan
    assert (plan["layers"], plan.get("interleave", 1)) == (layers, chunks)


@given(
    layers=st.lists(st.integers(0, 5), min_size=4, max_size=12).filter(lambda n: len(n) % 4 == 0)
)
def test_a_split_comes_back_as_it_went(layers: list[int]) -> None:
    model = replace(load("deepseek-v3"), layers=max(sum(layers), 1), pattern="dense", blocks={})
    chunks = len(layers) // 4
    plan = Plan(global_batch=8, pp=4, layers=tuple(layers), interleave=chunks,
                schedule="interleaved" if chunks > 1 else "1f1b")  # fmt: skip
    back = taken(given_to(model, plan)).plan
    assert (back["layers"], back.get("interleave", 1)) == (layers, chunks)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ttL", "is no row of E, t, m and L"),
        ("EtLt", "is no row of E, t, m and L"),
        ("Ett|tt|L", "3 parts do not divide among 2 stages"),
        ("Et*99999999999L", "is longer than a model"),
        ("E(t*9999)*9999L", "is longer than a model"),
    ],
)
def test_a_text_of_layers_that_cannot_be_is_refused(text: str, words: str) -> None:
    shape = given_to(load("llama3-8b"), Plan(global_batch=8, pp=2))
    with pytest.raises(InputError, match=words):
        taken(f"{shape} --pipeline-model-parallel-layout '{text}'")


def test_replicas_or_stages_are_neighbours() -> None:
    plan = Plan(global_batch=8, dp=2, pp=2, order="tp-cp-pp-dp", cp=2, context="ulysses")
    text = given_to(load("llama3-8b"), plan)
    assert taken(text).plan["order"] == "tp-cp-pp-dp"
    assert taken(text).plan["context"] == "ulysses"
    with pytest.raises(InputError, match="Megatron-LM has no pp-tp-cp-dp"):
        given_to(load("llama3-8b"), Plan(global_batch=8, order="pp-tp-cp-dp"))


@pytest.mark.parametrize(
    ("name", "unsaid"),
    [
        ("t5-11b", "layers of kind decoder"),
        ("gpt-oss-20b", "layers of kind sliding"),
    ],
)
def test_layers_that_it_does_not_have_are_refused(name: str, unsaid: str) -> None:
    with pytest.raises(InputError, match=unsaid):
        given_to(load(name), Plan(global_batch=8))


def test_what_of_a_model_no_argument_says_is_named() -> None:
    model = replace(load("llama3-8b"), window=4096, output_norms=True)
    assert emitted("megatron", model, Plan(global_batch=8))[1] == [
        "window = 4096", "output_norms = True",
    ]  # fmt: skip


@pytest.mark.parametrize("framework", NAMES)
def test_what_is_searched_for_a_framework_can_be_told(framework: str) -> None:
    """Every value that a search for it may choose, one by one."""
    fields_of = {"yes": True, "no": False}
    for name, values in parsed_choices(searched(framework), "--emit").items():
        for word in values:
            value = int(word) if word.isdigit() else fields_of.get(word, word)
            sizes = {} if framework in ("deepspeed", "accelerate") else {"pp": 2, "interleave": 2}
            plan = Plan(global_batch=64, dp=4, **sizes)
            if name in {one.name for one in fields(Plan)} - {"offload", "layers"}:
                plan = replace(plan, **{name: value})
            if name == "sequence_parallel":
                plan = replace(plan, tp=2)
            if name in ("order", "recompute", "zero") or framework == "nanotron":
                plan = replace(plan, interleave=1)
            if name == "schedule":
                plan = replace(plan, interleave=entry(word).chunks or 2)
            assert emitted(framework, load("llama3-8b"), plan, "llama3-8b")[1] == [], (name, word)


def test_an_argument_that_came_after_the_release_is_not_written_and_told() -> None:
    model, plan = replace(load("gpt3-175b"), attention="standard"), Plan(global_batch=8)
    for name, told in (("megatron-lm-2022", True), ("megatron-core", False)):
        text, unsaid = emitted("megatron", model, plan, stack=stacks.load(name))
        assert ("--attention-backend unfused" in text) is not told
        assert any("attention-backend = unfused: Megatron-LM has" in one for one in unsaid) is told


def test_a_release_that_interleaves_only_what_stages_divide_says_so() -> None:
    plans = [Plan(global_batch=batch, pp=4, interleave=2) for batch in (64, 65)]
    even, uneven = (lacking(plan, stacks.load("megatron-lm-2022")) for plan in plans)
    assert not even
    assert "interleaving = 65 microbatches on 4 stages since 2025-02" in uneven[0]
    assert not lacking(plans[1], stacks.load("megatron-core"))


@pytest.mark.parametrize("framework", ["megatron", "megatron-bridge", "nemo"])
def test_interleaved_groups_that_stages_do_not_divide_are_written_and_read(framework: str) -> None:
    """18 microbatches on 4 stages: groups of 4 and 5 leave fewer microbatches than stages."""
    plan = Plan(global_batch=36, pp=4, interleave=2, dp=2, schedule="interleaved")
    text = emitted(framework, load("gpt3-175b"), plan, "gpt3-175b")[0]
    name = (
        "microbatch-group-size-per-virtual-pipeline-stage"
        if framework == "megatron"
        else ("microbatch_group_size_per_vp_stage")
    )
    assert re.search(rf"{name}[ =]6\b", text)
    assert imported(framework, text, gpus=8).plan["interleave"] == 2
    with pytest.raises(InputError, match="6 is not what is simulated"):
        imported(framework, text, gpus=16)
    even = emitted(framework, load("gpt3-175b"), replace(plan, global_batch=32), "gpt3-175b")[0]
    assert name not in even


@pytest.mark.parametrize(
    ("chunks", "changed", "found"),
    [
        ("--pipeline-model-parallel-layout Et|(t|)*6tL", {}, "8 is not what is simulated; give 4"),
        ("--num-layers-per-virtual-pipeline-stage 1", {"global-batch": 10**9}, ""),
        ("--num-layers-per-virtual-pipeline-stage 1", {"micro-batch": 0}, ""),
        ("--num-layers-per-virtual-pipeline-stage 4", {}, ""),  # no layers for a second chunk
    ],
)
def test_a_size_of_interleaved_groups_is_held_against_the_schedule(
    chunks: str, changed: dict[str, int], found: str
) -> None:
    sizes = {"num-layers": 8, "hidden-size": 512, "num-attention-heads": 8, "seq-length": 512,
             "pipeline-model-parallel-size": 4, "vocab-size": 32_000}  # fmt: skip
    batches = {"micro-batch": 1, "global-batch": 16} | changed
    words = [f"--{name} {size}" for name, size in sizes.items()]
    words += [f"--{name}-size {size}" for name, size in batches.items()]
    text = " ".join([*words, chunks, "--microbatch-group-size-per-virtual-pipeline-stage 8"])
    if found:
        with pytest.raises(InputError, match=found):
            imported("megatron", text)
    else:
        assert imported("megatron", text).plan["schedule"] in ("1f1b", "interleaved")
