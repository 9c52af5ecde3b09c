"""Rows of tables: what they leave open, and the names that are none of ours."""

import pytest

from sim.analysis.validation.table import _graphs, setup_of
from sim.config.errors import InputError
from sim.hardware import stack as stacks
from tests.analysis.validation.test_validate import RUN


def test_automatic_schedules_of_the_zero_bubble_paper_are_ours_within_their_memory():
    row = {**RUN, "software": "megatron-lm-zero-bubble", "tp": 1, "pp": 8, "dp": 1, "gpus": 8}
    for name, memory in (("zb-1p", 1.0), ("zb-2p", 2.0)):
        plan = setup_of({**row, "schedule": name}).job.plan
        assert (plan.schedule, plan.schedule_memory) == ("zb-auto", memory)


def test_an_assumed_vocabulary_is_the_softwares_own_and_a_printed_one_stays():
    row = {**RUN, "software": "megatron-lm-zero-bubble", "vocab": 50304}
    printed, assumed = ({**row, "assumed": text} for text in ("precision", "vocab precision"))
    assert setup_of(printed).job.model.vocab == 50304
    assert setup_of(assumed).job.model.vocab == 32_000


def test_what_a_table_leaves_open_is_as_the_softwares_own_script_has_it():
    """NeMo AutoModel, examples/benchmark/configs/gptoss_120b_te_deepep.yaml."""
    row = {
        **RUN, "software": "nemo-automodel-fsdp2", "model": "gpt-oss-120b",
        "cluster": "dgx-h100-ndr", "family": "moe", "layers": 36, "hidden": 2880, "heads": 64,
        "kv_heads": 8, "head_dim": 64, "ffn": 2880, "vocab": 201088, "seq": 4096,
        "gated_mlp": "true", "tied_embeddings": "false", "experts": 128, "top_k": 4,
        "expert_ffn": 2880, "attention": "flash", "precision": "bf16", "gpus": 64, "tp": 1,
        "pp": 1, "dp": 64, "ep": 1, "zero": 3, "microbatch": 2, "global_batch": 512,
        "recompute": "unknown", "assumed": "recompute ep",
    }  # fmt: skip
    job = setup_of(row).job
    assert (job.plan.ep, job.plan.recompute) == (64, "none")
    assert job.model.blocks["experts"]["routing"] == {"law": "round-robin"}
    printed = {**row, "ep": 8, "recompute": "full", "assumed": ""}
    assert (setup_of(printed).job.plan.ep, setup_of(printed).job.plan.recompute) == (8, "full")


@pytest.mark.parametrize("schedule", ["1f1b", "zb-b", "v-half"])
def test_a_batch_that_a_table_does_not_print_is_that_of_the_softwares_script(schedule):
    """AMD Primus, tests/trainer/test_megatron_trainer_zero_bubble.yaml."""
    row = {
        **RUN, "software": "primus-megatron", "model": "llama2-7b", "cluster": "mi300x-node",
        "family": "llama", "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 32, "ffn": 11008,
        "vocab": 32000, "seq": float("nan"), "gated_mlp": "true", "tied_embeddings": "false",
        "gpus": 8, "pp": 8, "dp": 1, "zero": None, "microbatch": None, "global_batch": None,
        "interleave": 2 if schedule == "v-half" else 1, "schedule": schedule,
        "recompute": "unknown", "precision": "bf16", "attention": "flash",
    }  # fmt: skip
    job = setup_of(row).job
    assert (job.model.seq, job.plan.microbatches, job.plan.recompute) == (4096, 32, "none")
    with pytest.raises(InputError, match="the cell of"):
        setup_of({**row, "model": "llama2-70b"})
    with pytest.raises(InputError, match="sequence_parallel = 'no' is neither true nor false"):
        setup_of({**row, "sequence_parallel": "no"})


@pytest.mark.parametrize(
    ("layers", "hidden", "billions"),
    [(22, 2304, 1.5), (30, 4096, 6.2), (46, 5120, 14.6), (62, 6144, 28.3)],
)
def test_the_vocabulary_of_zero_bubbles_models_follows_from_their_parameters(
    layers, hidden, billions
):
    """Qi et al. 2023, table 3, counted as Megatron counts (Narayanan et al. 2021, equation 2)."""

    def counted(vocab):
        one = 12 * layers * hidden**2 * (1 + 13 / (12 * hidden))
        return round((one + (vocab + 1024) * hidden) / 1e9, 1)

    assert counted(stacks.load("megatron-lm-zero-bubble").scripted()["vocab"]) == billions
    assert layers < 40 or counted(50304) > billions, "GPT-2's is too large"


def test_scripts_of_a_task_and_of_a_model_count_beside_those_of_every_run():
    bridge, titan = stacks.load("megatron-bridge"), stacks.load("nemo-automodel-fsdp2")
    assert bridge.scripted("pretrain", "llama3-8b") == {}
    assert bridge.scripted("lora", "llama3-8b") == {"documents": 174}
    assert bridge.scripted("pretrain", "llama3-70b") == {"wgrad_deferral_limit": 22}
    assert titan.scripted("", "gpt-oss-120b")["routing"] == "round-robin"


def test_what_a_script_runs_again_may_depend_on_model_and_cluster():
    def again(cluster: str) -> str:
        names = ("", "llama3-70b", cluster, f"llama3-70b on {cluster}")
        return stacks.load("maxtext").scripted(*names).get("recompute_modules", "")

    assert again("tpu-v6e") == "core_attn layernorm mlp"
    assert again("tpu-v7x-ironwood") == "layernorm mlp"
    assert again("tpu-v5p") == ""


def test_a_note_names_the_rank_of_adapters_and_nothing_else_is_trained():
    """MLPerf's fine-tuning table says so in its notes only."""
    own = setup_of({**RUN, "note": "LoRA rank 16 fine-tuning, packed 8192: frozen base weights"})
    lora = own.job.plan.lora
    assert (lora.rank, lora.modules) == (16, ("linear_qkv", "linear_proj"))
    assert setup_of({**RUN, "note": "full fine-tuning"}).job.plan.lora is None


def test_a_column_counts_the_layers_whose_activations_lie_on_the_host():
    own = setup_of({**RUN, "cluster": "gb200-nvl72", "offload_layers": RUN["layers"] / 2})
    assert own.job.plan.offload.activations == 0.5
    # One Grace for two GPUs: half of NVLink-C2C's 450 GB/s for each.
    assert own.machine.topology.host.bandwidth_of("pcie-up") == 450e9


@pytest.mark.parametrize(
    ("printed", "scopes"),
    [
        ("transformer_engine:attn+moe_router", ("attn", "moe_router")),
        ("transformer_engine:m+l+p", ("mlp",)),
        ("transformer_engine:", ("attn", "mlp")),
        ("local:f+u+l+l+_+i+t+e+r+a+t+i+o+n", ("full_iteration",)),
        ("full_iteration:", ("full_iteration",)),
        ("none:attn+mlp", ()),
        ("none", ()),
        (float("nan"), ()),
    ],
)
def test_graphs_are_read_as_tables_print_them(printed, scopes):
    assert tuple(_graphs({"cuda_graph": printed})) == scopes


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("hidden", 10**400, "hidden = 1000000.*0... is not a whole number"),
        ("layers", 2.5, "layers = 2.5 is not a whole number"),
        ("heads", "many", 'heads = "many" is not a whole number'),
    ],
)
def test_a_cell_that_is_no_number_of_anything_is_refused(column, value, said):
    with pytest.raises(InputError, match=said):
        setup_of({**RUN, column: value})
