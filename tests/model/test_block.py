"""Blocks against Korthikanti et al. 2022, closed forms and laws."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sim.config.errors import InputError
from sim.model import counts
from sim.model.block import Block, block
from sim.model.checkpointing import Checkpointing
from sim.model.execution import Execution, Sharding
from sim.model.fusion import Fusion
from sim.model.kernels import Attention, Gemm, Kernel, MemoryBound, Overlap
from sim.model.kinds import kinds
from sim.model.operators import Items, kernels_of
from sim.model.reading import load
from sim.model.transformer import Transformer
from sim.program.operations import Collective
from tests.model.small import small

RULES = Checkpointing()  # what Megatron-LM means by "selective"
MEGATRON = Fusion(
    bias_gelu=True, masked_softmax=True, bias_dropout_add=True, norm=True, gradients="fused"
)


# What kinds need to know that have keys of their own; where tp > 1 they need sequence parallelism.
SETTINGS = {
    "experts": {"experts": 8, "top_k": 2, "ffn": 512, "shared": 1},
    "experts_alone": {"experts": 8, "top_k": 2, "ffn": 512, "shared": 1, "latent": 128},
    "parallel": {"norms": 2},
    "state": {"heads": 8, "head": 32, "state": 16, "groups": 8},
    "state_beside": {
        **{"rule": "lightning", "heads": 8, "head": 32, "state": 32, "groups": 8, "taps": 0},
    },
    "state_dense": {"rule": "delta", "heads": 8, "head": 32, "state": 16, "groups": 8},
    "state_experts": {
        **{"experts": 8, "top_k": 2, "ffn": 512},
        "mixer": {"heads": 8, "head": 32, "state": 16, "groups": 8},
    },
    "patches": {"patch": 16},
    "sound": {
        **{"channels": 1, "widths": [64, 64], "taps": [10, 3], "strides": [5, 2], "norms": "first"},
        **{"projected": True, "masked": True, "position_taps": 16, "position_groups": 4},
    },
}


def run(model: Transformer, fusion: Fusion = MEGATRON, **changes: object) -> Execution:
    """One sequence of a model on a rank that holds all of it, unless it is `changes`."""
    usual = dict(microbatch=1, sharding=Sharding(), precision="fp16")
    return Execution(model=model, fusion=fusion, **(usual | changes))  # type: ignore[arg-type]


def layer(
    name: str = "gpt3-175b",
    *,
    tp: int = 1,
    sp: bool = False,
    b: int = 1,
    recompute: str | tuple[str, ...] = "none",
    fusion: Fusion = MEGATRON,
) -> Block:
    sharding = Sharding(tp=tp, sequence_parallel=sp)
    return block(
        "dense", run(load(name), fusion, microbatch=b, sharding=sharding), RULES.rule(recompute)
    )


def kernels(items: Items) -> list[Kernel]:
    return list(kernels_of(items))


def collectives(items: Items) -> list[Collective]:
    calls = [item.collective if isinstance(item, Overlap) else item for item in items]
    return [item for item in calls if isinstance(item, Collective)]


def gemm_flops(items: Items) -> float:
    return sum(kernel.flops for kernel in kernels(items) if not isinstance(kernel, MemoryBound))


# Korthikanti et al. 2022, table 2: activation bytes of a layer, a = heads, t = tensor parallel.
@pytest.mark.parametrize("name", ["megatron-22b", "gpt3-175b", "mtnlg-530b", "megatron-1t"])
@pytest.mark.parametrize("b", [1, 4])
@pytest.mark.parametrize(
    ("t", "sp", "recompute", "formula"),
    [
        (1, False, "none", lambda r, t: 34 + 5 * r),
        (8, False, "none", lambda r, t: 10 + 24 / t + 5 * r / t),
        (8, True, "none", lambda r, t: 34 / t + 5 * r / t),
        (8, False, "selective", lambda r, t: 10 + 24 / t),
        (8, True, "selective", lambda r, t: 34 / t),
        (8, False, "full", lambda r, t: 2),
    ],
)
def test_activation_bytes_of_a_layer_follow_table_2(name, b, t, sp, recompute, formula) -> None:
    model = load(name)
    ratio = model.heads * model.seq / model.hidden
    sbh = model.seq * b * model.hidden
    kept = layer(name, tp=t, sp=sp, b=b, recompute=recompute).saved
    assert kept == pytest.approx(sbh * formula(ratio, t), rel=1e-12)


def test_ends_keep_what_section_4_3_says() -> None:
    model, t = load("gpt3-175b"), 8
    on_a_rank = run(model, sharding=Sharding(tp=t, sequence_parallel=True))
    sbh = model.seq * model.hidden
    assert block("embedding", on_a_rank).saved == pytest.approx(sbh / t)
    head = 4 * sbh / t * (1 + model.vocab / model.hidden)
    assert block("head", on_a_rank).saved == pytest.approx(head)


def test_sequence_parallelism_and_selective_recompute_save_what_figure_7_shows() -> None:
    # Figure 7: the two together need under 20 % of the tensor-parallel baseline for 175B and 530B
    # and 1T; each alone about halves it.
    for name in ("gpt3-175b", "mtnlg-530b", "megatron-1t"):
        baseline = layer(name, tp=8).saved
        assert 0.5 < layer(name, tp=8, sp=True).saved / baseline < 0.7
        assert 0.4 < layer(name, tp=8, recompute="selective").saved / baseline < 0.75
        assert layer(name, tp=8, sp=True, recompute="selective").saved / baseline < 0.22


def test_forward_gemms_are_24_b_s_h_squared_and_scores() -> None:
    gpt = load("gpt3-175b")
    s, h = gpt.seq, gpt.hidden
    assert gemm_flops(layer(b=2).forward) == 2 * (24 * s * h * h + 4 * s * s * h)


@given(
    tp=st.sampled_from([1, 2, 4, 8]),
    sp=st.booleans(),
    fused=st.booleans(),
    packed=st.booleans(),
    name=st.sampled_from(["gpt3-175b", "llama2-7b", "megatron-22b"]),
)
def test_backward_does_twice_the_forward_products(tp, sp, fused, packed, name) -> None:
    fusion = Fusion(norm=fused, swiglu=fused, packed_projections=packed)
    own = layer(name, tp=tp, sp=sp and tp > 1, fusion=fusion)
    flash = sum(
        kernel.flops
        for kernel in kernels((*own.forward, *own.backward))
        if isinstance(kernel, Attention)
    )
    products = [
        sum(kernel.flops for kernel in kernels(items) if isinstance(kernel, Gemm))
        for items in (own.forward, own.backward)
    ]
    assert products[1] == 2 * products[0]
    if flash:
        assert flash == pytest.approx(3.5 * 2 * 4096 * 4096 * 4096 / tp)


@given(tp=st.sampled_from([2, 4, 8]), sp=st.booleans(), name=st.sampled_from(["gpt3-175b"]))
def test_tensor_parallelism_divides_the_products_evenly(tp, sp, name) -> None:
    whole, part = layer(name), layer(name, tp=tp, sp=sp)
    assert gemm_flops(part.forward) * tp == gemm_flops(whole.forward)
    assert gemm_flops(part.backward) * tp == gemm_flops(whole.backward)


def test_megatron_all_reduces_twice_forward_and_twice_backward() -> None:
    gpt = load("gpt3-175b")
    own = layer(tp=8, b=3)
    for items in (own.forward, own.backward):
        calls = collectives(items)
        assert [call.kind for call in calls] == ["all_reduce", "all_reduce"]
        assert {call.bytes for call in calls} == {3 * gpt.seq * gpt.hidden * 2}


def test_sequence_parallelism_replaces_all_reduces_and_gathers_two_inputs_again() -> None:
    own = layer(tp=8, sp=True)
    ahead = [call.kind for call in collectives(own.forward)]
    back = [call.kind for call in collectives(own.backward)]
    assert ahead == ["all_gather", "reduce_scatter"] * 2
    assert sorted(back) == ["all_gather"] * 4 + ["reduce_scatter"] * 2


DTENSOR = replace(MEGATRON, redistributes=True)


def test_inputs_that_are_kept_whole_are_not_gathered_again() -> None:
    """DTensor's: what a layer keeps of them grows from a share to the whole."""
    usual, own = (layer(tp=8, sp=True, fusion=fusion) for fusion in (MEGATRON, DTENSOR))
    back = [call.kind for call in collectives(own.backward)]
    assert sorted(back) == ["all_gather"] * 2 + ["reduce_scatter"] * 2
    assert collectives(own.forward) == collectives(usual.forward)
    gpt = load("gpt3-175b")
    inputs = 2 * 2 * gpt.seq * gpt.hidden  # those of two products, in half precision
    assert own.saved - usual.saved == pytest.approx(inputs * 7 / 8)
    beside = replace(DTENSOR, user_buffers=True)  # gathered in pieces, of which none is left over
    assert layer(tp=8, sp=True, fusion=beside).saved == pytest.approx(own.saved)


@pytest.mark.parametrize(
    ("b", "change", "copied"),
    [(1, {}, 4), (2, {}, 8), (2, {"overlap_tensor": True}, 0), (2, {"compiled": True}, 8)],
)
def test_shares_of_a_sequence_are_copied_beside_each_collective(b, change, copied) -> None:
    """Two gathers and two scatters each way; a single sequence needs no copy behind a gather."""
    gpt, fusion = load("gpt3-175b"), replace(DTENSOR, **change)
    own = layer(tp=8, sp=True, b=b, fusion=fusion)
    copies = [
        kernel
        for items in (own.forward, own.backward)
        for kernel in kernels(items)
        if kernel.name == "shares in order"
    ]
    assert len(copies) == copied
    assert {kernel.bytes for kernel in copies} <= {2 * 2 * b * gpt.seq * gpt.hidden}


def test_one_rank_has_nobody_to_talk_to() -> None:
    own = layer()
    assert not collectives((*own.forward, *own.backward))


def test_overlap_hides_backward_communication_behind_the_weight_gradient() -> None:
    fusion = Fusion(overlap_tensor=True)
    plain, hidden = layer(tp=8, fusion=Fusion()), layer(tp=8, fusion=fusion)
    assert sum(isinstance(item, Overlap) for item in hidden.backward) == 2
    assert kernels(hidden.backward) == kernels(plain.backward)
    assert collectives(hidden.backward) == collectives(plain.backward)


def test_selective_recomputation_repeats_the_attention_core_only() -> None:
    gpt = load("gpt3-175b")
    again = layer(recompute="selective").recompute
    assert gemm_flops(again) == 4 * gpt.seq * gpt.seq * gpt.hidden
    assert not collectives(again)


def test_full_recomputation_repeats_the_forward_pass_with_its_communication() -> None:
    own = layer(tp=8, recompute="full")
    assert own.recompute == own.forward
    assert layer(tp=8).recompute == ()


@given(st.sampled_from(["none", "selective", "full"]))
def test_what_recomputation_frees_is_alive_again_while_the_layer_runs_backward(mode) -> None:
    plain, again = layer(tp=8), layer(tp=8, recompute=mode)
    assert again.saved + again.transient == pytest.approx(plain.saved + plain.transient)


def test_flash_attention_keeps_no_scores() -> None:
    llama = load("llama2-7b")
    fused = block("dense", run(llama, Fusion(norm=True, swiglu=True))).saved
    s, h, f, a = llama.seq, llama.hidden, llama.ffn, llama.heads
    # Two norms' inputs, two linears' inputs, Q K V, the output; gate, up, product; log-sum-exp.
    assert fused == s * (2 * (2 + 2 + 3 + 1) * h + 2 * 3 * f + 4 * a)


def test_grouped_queries_keep_fewer_keys_and_values() -> None:
    many, few = (small(heads=8, kv_heads=count, attention="flash") for count in (8, 2))
    saved = [block("dense", run(model, Fusion())).saved for model in (many, few)]
    assert saved[0] - saved[1] == 2 * 2 * 32 * 6 * 8


@pytest.mark.parametrize(("name", "tp"), [("gpt3-175b", 8), ("llama3-70b", 8), ("gpt2-124m", 1)])
def test_parts_hold_all_parameters(name: str, tp: int) -> None:
    model = load(name)
    on_a_rank = run(model, Fusion(), sharding=Sharding(tp=tp))
    parts, whole = sum(block(kind, on_a_rank).count for kind in model.row), counts.parameters(model)
    # What tensor parallelism replicates (norms, some biases, positions) is small.
    assert whole / tp <= parts <= whole / tp * 1.01


def test_fusing_never_moves_more_bytes_nor_launches_more() -> None:
    def cost(fusion: Fusion) -> tuple[float, int]:
        own = layer(fusion=fusion)
        executed = kernels((*own.forward, *own.backward))
        return sum(k.bytes for k in executed), sum(k.launches for k in executed)

    none, some = cost(Fusion()), cost(Fusion(bias_gelu=True, masked_softmax=True))
    every = cost(Fusion(compiled=True))
    assert every[0] < some[0] < none[0]
    assert every[1] < some[1] < none[1]


@pytest.mark.parametrize(
    ("sharding", "words"),
    [
        (Sharding(tp=5), "tp = 5 does not divide heads = 96"),
        (Sharding(sequence_parallel=True), "sequence_parallel needs tp > 1"),
        (Sharding(cp=2), "cp > 1 needs flash attention"),
        (Sharding(cp=3), "seq = 2048 does not divide into 3 parts"),
    ],
)
def test_a_sharding_that_does_not_divide_is_refused(sharding: Sharding, words: str) -> None:
    with pytest.raises(InputError, match=words):
        run(load("gpt3-175b"), sharding=sharding)


def test_keys_and_values_are_replicated_where_ranks_outnumber_their_heads() -> None:
    llama = load("llama3-70b")
    eight, sixteen = (
        block("dense", run(llama, Fusion(), sharding=Sharding(tp=tp))).count for tp in (8, 16)
    )
    # Sixteen ranks hold eight key and eight value heads twice over, and the norms as ever.
    assert 2 * sixteen - eight == 2 * 8192 * 128 + 2 * 8192


def test_a_split_gather_hides_behind_the_rank_s_own_rows_and_loses_no_work() -> None:
    plain, split = (layer(tp=8, sp=True, fusion=Fusion(split_gather=on)) for on in (False, True))
    for whole, halves in ((plain.forward, split.forward), (plain.backward, split.backward)):
        assert gemm_flops(whole) == gemm_flops(halves)
        assert sorted(c.name for c in collectives(whole)) == sorted(
            c.name for c in collectives(halves)
        )
    assert sum(isinstance(item, Overlap) for item in split.forward) == 2
    assert sum(isinstance(item, Overlap) for item in split.backward) == 2
    assert split.saved == plain.saved


def test_user_buffers_hide_every_collective_but_one_piece_and_lose_no_work() -> None:
    fusions = (Fusion(overlap_tensor=True, user_buffers=on) for on in (False, True))
    plain, pieces = (layer(tp=8, sp=True, fusion=fusion) for fusion in fusions)
    for whole, cut in ((plain.forward, pieces.forward), (plain.backward, pieces.backward)):
        assert gemm_flops(whole) == gemm_flops(cut)
        assert sorted((c.name, c.bytes) for c in collectives(whole)) == sorted(
            (c.name, c.bytes) for c in collectives(cut)
        )
        assert not any(isinstance(item, Collective) for item in cut), "none is waited for alone"
        assert all(call.quiet for call in collectives(cut))
    beside = [item for item in pieces.forward if isinstance(item, Overlap)]
    hidden = sum(gemm_flops(item.kernels) for item in beside)
    products = [k for k in kernels(pieces.forward) if isinstance(k, Gemm) and k.batch == 1]
    assert hidden == 7 / 8 * sum(gemm.flops for gemm in products)


def test_context_parallelism_divides_attention_and_sends_keys_round() -> None:
    llama = load("llama3-8b")
    whole = block("dense", run(llama, Fusion()))
    part = block("dense", run(llama, Fusion(), sharding=Sharding(cp=4)))
    assert gemm_flops(part.forward) * 4 == gemm_flops(whole.forward)
    assert part.saved * 4 == whole.saved
    assert {call.axes for call in collectives(part.forward)} == {("cp",)}


STATE_OF_SIX_GROUPS = {"heads": 24, "head": 32, "state": 16, "groups": 6}


def test_context_parallelism_exchanges_the_heads_of_states_for_tokens() -> None:
    nano = load("nemotron-3-nano")
    whole = block("state", run(nano, Fusion()))
    for cp in (4, 16):  # 64 heads in 8 groups, which 16 ranks have twice
        part = block("state", run(nano, Fusion(), sharding=Sharding(cp=cp)))
        assert part.count == whole.count
        more = 2 if cp == 16 else 1
        assert gemm_flops(part.forward) * cp >= gemm_flops(whole.forward)
        assert (gemm_flops(part.forward) * cp == gemm_flops(whole.forward)) == (more == 1)
        # x and gate, B and C of each group, a step of each head; outputs and gate back
        columns = 2 * 4096 + more * 2 * 8 * 128 + 64
        sent = {call.name: call.bytes for call in collectives(part.forward)}
        assert sent == {
            "mixer inputs": 2 * 8192 / cp * columns,
            "mixer outputs": 2 * 8192 / cp * 2 * 4096,
        }
    with pytest.raises(InputError, match="cp = 128 does not divide the 64 heads of mamba2"):
        block("state", run(nano, Fusion(), sharding=Sharding(cp=128)))
    odd = nano.changed(pattern="state", layers=1, blocks={"state": STATE_OF_SIX_GROUPS})
    with pytest.raises(InputError, match="cp = 4 and 6 groups of a state: neither"):
        block("state", run(odd, Fusion(), sharding=Sharding(cp=4)))
    first = {"rule": "mamba", "heads": 64, "state": 16, "rank": 4}
    mamba = nano.changed(pattern="state", layers=1, blocks={"state": first})
    with pytest.raises(InputError, match="states of mamba is not known"):
        block("state", run(mamba, Fusion(), sharding=Sharding(cp=2)))


def accumulated(fusion: Fusion, *, later: float, bucketed: float = 0.0) -> float:
    """Passes over a layer's weights and the tied embedding that add up gradients."""
    model = small()
    micro_steps = run(model, fusion, precision="fp32", later=later, bucketed=bucketed)
    moved = sum(
        kernel.bytes
        for kind in model.row
        for kernel in kernels(block(kind, micro_steps).backward)
        if kernel.name.endswith("accumulate")
    )
    return moved / 4 / (counts.weights(model, "dense") + model.vocab * model.hidden)


def test_the_first_fresh_gradients_of_untied_matrices_cost_nothing() -> None:
    fresh = Fusion(gradients="fresh")
    tied = 100 * 64 / (12 * 64 * 64 + 100 * 64)
    assert accumulated(fresh, later=0.0) == pytest.approx(3 * tied)
    assert accumulated(fresh, later=1.0) == pytest.approx(3 + 3 * tied)


@pytest.mark.parametrize(("gradients", "width"), [("fused", 4), ("fused-buffer", 2)])
def test_gradients_fused_into_products_are_read_and_written_once(gradients, width) -> None:
    own = layer(fusion=Fusion(gradients=gradients))
    sums = [k for k in kernels(own.weight_gradient) if isinstance(k, Gemm)]
    elements = counts.weights(load("gpt3-175b"), "dense")
    assert sum(k.result_bytes for k in sums) == 2 * width * elements
    assert not [k for k in kernels(own.weight_gradient) if k.name.endswith("accumulate")]


def test_ddp_copies_fresh_gradients_into_its_buckets_once() -> None:
    fresh = Fusion(gradients="fresh")
    more = accumulated(fresh, later=0.5, bucketed=0.5) - accumulated(fresh, later=0.5)
    assert more == pytest.approx(1.0)


# --- The two halves of a backward pass ------------------------------------------------------------


OF_OTHER_MODELS = {"convolutional", "profiled", "recommendation", "encoder_stage", "decoder_stage"}


@given(
    kind=st.sampled_from(sorted(kinds().keys() - OF_OTHER_MODELS)),
    tp=st.sampled_from([1, 8]),
    sp=st.booleans(),
    overlap=st.booleans(),
    recompute=st.sampled_from(["none", "selective", "full"]),
)
def test_the_halves_of_a_backward_pass_do_what_the_whole_does(
    kind, tp, sp, overlap, recompute
) -> None:
    assume(kind not in SETTINGS or sp or tp == 1)
    sharding = Sharding(tp=tp, sequence_parallel=sp and tp > 1)
    model = replace(load("gpt3-175b"), blocks=SETTINGS)
    on_a_rank = run(model, Fusion(overlap_tensor=overlap), sharding=sharding)
    own = block(kind, on_a_rank, RULES.rule(recompute))
    halves = (*own.input_gradient, *own.weight_gradient)
    for part in (kernels, collectives):
        assert Counter(part(halves)) == Counter(part(own.backward))


def test_scores_have_no_weights_and_both_their_gradients_are_of_inputs() -> None:
    gpt, own = load("gpt3-175b"), layer()
    linear, scores = 24 * gpt.seq * gpt.hidden**2, 4 * gpt.seq**2 * gpt.hidden
    assert gemm_flops(own.weight_gradient) == linear
    assert gemm_flops(own.input_gradient) == linear + 2 * scores


@given(st.sampled_from(["gpt3-175b", "llama2-7b"]), st.sampled_from([1, 8]))
def test_between_the_halves_lie_the_inputs_of_linear_layers_and_the_gradients_of_their_outputs(
    name, tp
) -> None:
    model, own = load(name), layer(name, tp=tp)
    widths = {
        "inputs": 2 * model.hidden + (model.hidden + model.ffn) / tp,
        "outputs": 2 * model.hidden + (3 * model.hidden + model.ffn * (1 + model.gated_mlp)) / tp,
    }
    assert own.held == pytest.approx(2 * model.seq * sum(widths.values()))


def test_gelu_in_single_operations_moves_what_each_of_them_reads_and_writes():
    # Operands read and results written: pow, times c, sum, times k, tanh, plus 1, half, product.
    forward = [2, 2, 3, 2, 2, 2, 2, 3]
    # Both factors of the product, half, tanh's, k, c, three of pow's, and x's gradients' sums.
    backward = [3, 3, 2, 3, 2, 2, 2, 2, 3, 3, 3]
    model = load("gpt3-175b")
    size = 2.0 * model.seq * model.ffn
    own = block("dense", run(model, Fusion(composed_gelu=("gpt",))))
    one = block("dense", run(model, Fusion()))
    for items, passes in ((own.forward, forward), (own.backward, backward)):
        gelu = next(kernel for kernel in kernels(items) if kernel.name.startswith("gelu"))
        assert isinstance(gelu, MemoryBound)
        assert (gelu.bytes, gelu.launches) == (sum(passes) * size, len(passes))
    assert own.saved - one.saved == 3 * size  # x / 2, tanh and 1 + tanh
    bert = replace(model, family="bert")
    assert block("dense", run(bert, Fusion(composed_gelu=("gpt",)))).saved == one.saved


@pytest.mark.parametrize(
    ("precision", "each"),
    [
        # Norm, scaling by it, sum in fp32.
        ("fp32", [4, 8, 12]),
        # In front of these: weights cast, gradients cast, unscaled, checked (a byte each), joined.
        ("fp16", [6, 6, 8, 5, 1, 4, 8, 12]),
    ],
)
def test_gradients_clipped_in_every_micro_step_move_what_their_operations_say(precision, each):
    model = load("gpt3-175b")
    own = block("dense", run(model, Fusion(gradients="clipped"), precision=precision))
    sums = [k for k in kernels(own.weight_gradient) if k.name.endswith("accumulate")]
    weights = sum(one.rows * one.columns for shapes in own.matrices.values() for one in shapes)
    assert all(isinstance(k, MemoryBound) and k.launches == len(each) for k in sums)
    assert sum(k.bytes for k in sums if isinstance(k, MemoryBound)) == weights * sum(each)


# --- Attention and feed-forward block side by side -----------------------------------------------


def test_a_parallel_layer_computes_what_one_in_sequence_does() -> None:
    model = replace(load("gpt3-175b"), blocks={"parallel": {"norms": 2}})
    ours, theirs = block("parallel", run(model)), block("dense", run(model))
    for part in ("forward", "input_gradient", "weight_gradient"):
        assert gemm_flops(getattr(ours, part)) == gemm_flops(getattr(theirs, part))
    assert ours.count == theirs.count
    one = block("parallel", run(replace(model, blocks={})))
    assert theirs.count - one.count == 2 * model.hidden  # a norm less


def test_norms_of_what_a_layer_gives_are_two_more() -> None:
    plain = load("llama3-8b")
    normed = block("dense", run(replace(plain, output_norms=True)))
    assert normed.count - block("dense", run(plain)).count == 2 * plain.hidden
    assert len(kernels(normed.forward)) == len(kernels(block("dense", run(plain)).forward)) + 2


def test_biases_are_those_of_the_linear_layers_named() -> None:
    plain = load("llama3-8b")
    widths = plain.query_width + 2 * plain.kv_width
    own = block("dense", run(replace(plain, biases=("qkv",))))
    assert own.count - block("dense", run(plain)).count == widths
    head = block("head", run(replace(plain, biases=("logits",))))
    assert head.count - block("head", run(plain)).count == plain.vocab
