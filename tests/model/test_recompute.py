"""What runs again, and what is kept until then: modules, operators, policies."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.config.errors import InputError
from sim.hardware import stack
from sim.model import precision as recipes
from sim.model.block import Block, block, check_rule
from sim.model.checkpointing import MODES, Checkpointing, Rule
from sim.model.execution import Execution, Sharding
from sim.model.fusion import Fusion
from sim.model.kernels import Attention, Gemm
from sim.model.kinds import experts_of, specialised
from sim.model.operators import Items, kernels_of
from sim.model.reading import load
from sim.model.transformer import Latent, Transformer
from sim.program.operations import Collective
from tests.model.executions import fused

FUSED = Fusion(bias_gelu=True, masked_softmax=True, bias_dropout_add=True, norm=True, swiglu=True)
MODULES = ("core_attn", "mlp", "layernorm")
OPERATORS = ("qkv", "attention output", "gelu", "ffn in", "ffn out", "ffn residual")


# A layer of DeepSeek-V3 (arXiv 2412.19437, section 4.2): latent attention, a shared expert.
DEEPSEEK = Transformer(
    layers=1, hidden=7168, heads=128, head=192, value_head=128, ffn=18432, vocab=129280, seq=4096,
    latent=Latent(query=1536, kv=512, rotary=64), gated_mlp=True, positions="rotary", bias=False,
    normalisation="rmsnorm", dropout=False, attention="flash", tied_embeddings=False,
    pattern="experts",
    blocks={"experts": {"experts": 256, "top_k": 8, "ffn": 2048, "shared": 1}},
)  # fmt: skip


def layer(
    rule: Rule, name: str = "gpt3-175b", *, tp: int = 1, fusion: Fusion = FUSED, kind: str = "dense"
) -> Block:
    sharding = Sharding(tp=tp, sequence_parallel=tp > 1)
    run = Execution(
        model=load(name), microbatch=1, sharding=sharding, precision="bf16", fusion=fusion
    )
    return block(kind, run, rule)


def again(*names: str) -> Rule:
    return Checkpointing().rule(names)


def products(items: Items) -> list[str]:
    return [kernel.name for kernel in kernels_of(items) if isinstance(kernel, Gemm)]


def flops(items: Items) -> float:
    return sum(k.flops for k in kernels_of(items) if isinstance(k, Gemm | Attention))


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        (("core_attn",), 34),
        (("layernorm",), 34 - 4),  # the inputs of both linears behind norms
        (("mlp",), 34 - 16),  # gelu's input and its result; the module's input is still kept
        (("mlp", "layernorm"), 34 - 16 - 4),  # but not where that is made again as well
        (("gelu",), 34 - 8),  # the result, for the input of the second linear
        (("full",), 2),
    ],
)
def test_modules_keep_what_is_left_of_34_s_b_h(names, kept) -> None:
    """Korthikanti et al. 2022, section 4.1, adds these up tensor by tensor."""
    gpt = load("gpt3-175b")
    scores = 0 if set(names) & {"core_attn", "full"} else 5 * gpt.heads * gpt.seq**2
    assert layer(again(*names)).saved == kept * gpt.seq * gpt.hidden + scores


@pytest.mark.parametrize("name", ["blockwise", "current-scaling", "mxfp8"])
def test_a_cast_of_what_is_made_again_is_made_again_too(name: str) -> None:
    """Megatron-LM, set_save_original_input: linear layers behind norms that run again keep neither
    input nor cast; that behind a checkpointed module keeps its cast."""
    llama, recipe = replace(load("llama3-8b"), attention="flash"), recipes.load(name)
    run = replace(fused(llama, recipe=recipe), fusion=FUSED)
    size = llama.seq * llama.hidden

    def less(*names: str) -> float:
        return block("dense", run).saved - block("dense", run, again(*names)).saved

    assert less("layernorm") == pytest.approx(2 * size * recipe.element)
    assert less("core_attn") == pytest.approx(2 * size + 4 * llama.seq * llama.heads)


def test_discarded_and_checkpointed_modules_differ_in_who_keeps_the_result() -> None:
    """Megatron's core_attn leaves its result with the projection behind; an operator by itself is
    made again for it."""
    gpt = load("gpt3-175b")
    module, operator = layer(again("core_attn")), layer(again("attention core"))
    assert module.recompute == operator.recompute
    assert module.saved - operator.saved == 2 * gpt.seq * gpt.hidden


@given(
    st.sets(st.sampled_from(MODULES + OPERATORS)),
    st.sets(st.sampled_from(MODULES + OPERATORS)),
    st.sampled_from([1, 8]),
)
def test_more_names_run_more_again_and_no_less(first, second, tp) -> None:
    few, many = (layer(again(*sorted(names)), tp=tp) for names in (first, first | second))
    assert flops(few.recompute) <= flops(many.recompute) <= flops(many.forward)
    assert set(few.recompute) <= set(many.recompute)
    assert few.forward == many.forward
    assert few.backward == many.backward


@given(st.sets(st.sampled_from(MODULES)), st.sampled_from(["gpt3-175b", "llama2-7b"]))
def test_modules_never_keep_more_and_the_whole_layer_keeps_least(names, model) -> None:
    none, some, full = (layer(r, model) for r in (Rule(), again(*sorted(names)), again("full")))
    assert full.saved <= some.saved <= none.saved
    assert some.saved + some.transient <= none.saved + none.transient + 1e-3


@pytest.mark.parametrize(
    "model",
    [*map(load, ("gpt3-175b", "llama2-7b", "bert-large", "mixtral-8x7b", "qwen3-32b")), DEEPSEEK],
    ids=lambda model: model.name or "deepseek",
)
@pytest.mark.parametrize("fusion", [Fusion(), FUSED])
def test_without_recomputation_a_block_keeps_what_its_operators_do(model, fusion) -> None:
    """Tensor by tensor it is the same sum, and none keeps more than it has read or made."""
    run = Execution(model=model, microbatch=1, sharding=Sharding(), precision="bf16", fusion=fusion)
    for kind in dict.fromkeys(run.model.row):
        module, own_run = specialised(kind, run)
        operators = module.operators(own_run)
        saved = sum(own.saved + own.saved_for_weights for own in operators)
        assert block(kind, run).saved == pytest.approx(saved, rel=1e-12)
        for own in operators:
            assert 0 <= own.keeps <= own.inputs, own.name


def expert_layer(*names: str) -> Block:
    run = Execution(
        model=DEEPSEEK, microbatch=1, sharding=Sharding(), precision="bf16", fusion=FUSED
    )
    return block(DEEPSEEK.kinds[-1], run, again(*names))


def test_modules_of_deepseek_v3_free_what_they_make() -> None:
    """Megatron-Core's moe_act and mla_up_proj discard results that the next operator would keep."""
    own, whole = experts_of(DEEPSEEK)[0], expert_layer()
    seq, heads = DEEPSEEK.seq, DEEPSEEK.heads
    rows = seq * own.top_k
    freed = {
        "moe_act": 2 * rows * own.ffn,
        "mla_up_proj": 2 * seq * heads * (2 * DEEPSEEK.head + DEEPSEEK.value_head),
        "layernorm": 2 * 2 * seq * DEEPSEEK.hidden,
        "shared_experts": 2 * seq * 3 * own.shared_width,
    }
    for name, size in freed.items():
        assert whole.saved - expert_layer(name).saved == size
    both = expert_layer("moe_act", "mla_up_proj")
    assert whole.saved - both.saved == freed["moe_act"] + freed["mla_up_proj"]


def test_a_layer_with_experts_sends_tokens_again_where_all_of_it_runs_again() -> None:
    run = Execution(
        model=DEEPSEEK,
        microbatch=1,
        sharding=Sharding(ep=8, experts=("ep",)),
        precision="bf16",
        fusion=FUSED,
    )
    ahead = block(DEEPSEEK.kinds[-1], run)
    for names, calls in ((("moe",), 2), (("full",), 2), (("moe_act", "mla_up_proj"), 0)):
        run_again = block(DEEPSEEK.kinds[-1], run, again(*names)).recompute
        assert set(run_again) <= set(ahead.forward)
        assert sum(isinstance(item, Collective) for item in run_again) == calls


TITAN = stack.load("torchtitan-compile")


def titan(name: str = "llama3-8b", *, tp: int = 1, compiled: bool = True) -> Block:
    fusion = TITAN.fusion if compiled else stack.load("torchtitan-eager").fusion
    return layer(TITAN.checkpointing.rule("selective"), name, tp=tp, fusion=fusion)


def test_torchtitan_runs_every_second_product_again_and_no_attention() -> None:
    """wk, wo and w3 of wq, wk, wv, wo, w1, w3, w2 (torchtitan, parallelize_llama.py)."""
    run = titan().recompute
    assert products(run) == ["qkv", "attention output", "ffn in"]
    assert not any(isinstance(kernel, Attention) for kernel in kernels_of(run))


def test_torchtitan_keeps_inputs_and_every_other_product() -> None:
    model, compiled, eager = load("llama3-8b"), titan(), titan(compiled=False)
    h, kv, f = model.hidden, model.kv_width, model.ffn
    statistics = 4 * model.heads
    # The layer's input, Q, V, the attention's result and its statistics, the first of the MLP's.
    assert compiled.saved == model.seq * (2 * (h + h + kv + h + f) + statistics)
    # Eager keeps the last product too, which nothing reads.
    assert eager.saved - compiled.saved == model.seq * 2 * h


def test_with_tensor_parallelism_scattered_results_are_kept_and_their_products_are_not_run() -> (
    None
):
    """Inputs are gathered once more for the products that run again and for weights' gradients."""
    own = titan(tp=8)
    assert products(own.recompute) == ["qkv", "ffn in"]
    again, back = (
        [item.kind for item in items if isinstance(item, Collective)]
        for items in (own.recompute, own.backward)
    )
    assert again == ["all_gather"] * 2
    assert sorted(back) == ["all_gather"] * 2 + ["reduce_scatter"] * 2


@pytest.mark.parametrize("name", ["llama2-7b", "llama3-8b"])
def test_stopping_early_leaves_out_the_last_product_of_a_layer(name) -> None:
    """torch.utils.checkpoint without `use_reentrant`: nothing behind it is kept."""
    whole, early = (
        layer(Checkpointing(early_stop=stop).rule("full"), name) for stop in (False, True)
    )
    assert set(products(whole.recompute)) - set(products(early.recompute)) == {"ffn out"}
    assert early.saved == whole.saved
    functions = layer(Checkpointing(early_stop=True, functions=True).rule("full"), name)
    assert products(functions.recompute) == products(whole.recompute)
    assert len(early.recompute) < len(functions.recompute) < len(whole.recompute)


@pytest.mark.parametrize("word", ["mlq", "mla_up_proj", "moe", "router"])
def test_a_name_that_no_layer_has_is_refused(word) -> None:
    model = Transformer(
        tied_embeddings=True, layers=1, hidden=64, heads=8, ffn=128, vocab=64, seq=32
    )
    run = Execution(model=model, microbatch=1, sharding=Sharding(), precision="bf16", fusion=FUSED)
    for name in (*MODES, *MODULES):
        check_rule(Checkpointing().rule(name), model.kinds, run, where="plan")
    with pytest.raises(InputError, match=rf"no operator or module of this model is named '{word}'"):
        check_rule(again(word), model.kinds, run, where="plan")
