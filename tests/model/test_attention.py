"""Kinds of attention against closed forms: windows, chunks, norms of heads, sinks, latents."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.config.errors import InputError
from sim.hardware import device
from sim.hardware.kernels.fused_attention import attention_time, multiplied
from sim.hardware.kernels.rates import AttentionRates
from sim.hardware.kernels.time import kernel_time
from sim.model import counts
from sim.model.block import Block, block
from sim.model.execution import Execution, Sharding
from sim.model.fusion import Fusion
from sim.model.kernels import Attention, Gemm, MemoryBound
from sim.model.operators import kernels_of
from sim.model.transformer import Latent, Transformer
from sim.program.operations import Collective

PLAIN: dict[str, Any] = dict(
    layers=1, hidden=256, heads=8, ffn=512, vocab=100, seq=1024, attention="flash",
    bias=False, dropout=False, positions="rotary", normalisation="rmsnorm", tied_embeddings=True,
)  # fmt: skip


def layer(*, sharding: Sharding | None = None, fusion: Fusion | None = None, **shape: Any) -> Block:
    run = Execution(
        model=Transformer(**(PLAIN | shape)),
        microbatch=1,
        sharding=sharding or Sharding(),
        precision="bf16",
        fusion=fusion or Fusion(compiled=True),
    )
    return block("dense", run)


def kernel(**changes: Any) -> Attention:
    usual = dict(name="", batch=1, heads=1, kv_heads=1, q=512, kv=512, head=64, causal=True)
    return Attention(**(usual | changes))


def cores(own: Block) -> list[Attention]:
    items = (*own.forward, *own.backward)
    return [one for one in kernels_of(items) if isinstance(one, Attention)]


def products(own: Block) -> float:
    return sum(k.flops for k in kernels_of(own.forward) if isinstance(k, Gemm))


# --- Windows and chunks ---------------------------------------------------------------------------


@given(st.integers(1, 600), st.booleans())
def test_a_window_multiplies_the_band_below_the_diagonal(window: int, backward: bool) -> None:
    seen = sum(min(query + 1, window) for query in range(512))
    one = kernel(window=window, backward=backward)
    # The continuous count leaves out half of the diagonal.
    assert one.flops == pytest.approx((seen - min(window, 512) / 2) * one.width, rel=1e-12)


def test_a_window_as_long_as_the_sequence_is_full_attention() -> None:
    full, wide = kernel(), kernel(window=512)
    assert (wide.flops, wide.full_flops) == (full.flops, full.full_flops)
    rates = AttentionRates(forward={64: 0.5}, backward={64: 0.5}, granule=64)
    seconds = [attention_time(one, rates, peak=1e12, sms=4, bandwidth=1e12) for one in (full, wide)]
    assert seconds[0] == seconds[1]
    assert layer(window=1024).forward != layer().forward
    assert layer(window=1024).saved == layer().saved


@pytest.mark.parametrize("half", [0, 3, 64])
def test_a_window_on_both_sides_is_counted_query_by_query(half: int) -> None:
    seen = sum(len(range(max(0, i - half), min(512, i + half + 1))) for i in range(512))
    one = kernel(window=2 * half + 1, causal=False)
    # The continuous count leaves out a quarter of a key a sequence.
    assert one.flops == pytest.approx((seen - 0.25) * one.flops / (512 * one.keys(one.span)))


@given(st.lists(st.integers(1, 512), min_size=2, max_size=2).map(sorted))
def test_a_wider_window_never_takes_less_time(windows: list[int]) -> None:
    rates = AttentionRates(forward={64: 0.5}, backward={64: 0.5})
    one, other = (
        attention_time(kernel(window=w), rates, peak=1e12, sms=4, bandwidth=1e15) for w in windows
    )
    assert one <= other * (1 + 1e-12)


def test_the_queries_of_a_tile_go_through_one_another_s_windows() -> None:
    # gpt-oss: 128 keys a query, and 128 queries a tile: two tiles of keys, not one.
    rates = AttentionRates(forward={64: 0.5}, backward={64: 0.5})
    one = kernel(q=65536, kv=65536, window=128)
    assert multiplied(rates, one) / one.flops == pytest.approx(2.0, rel=2e-3)


def test_chunks_are_sequences_of_their_own() -> None:
    own, whole = cores(layer(chunk=256)), cores(layer())
    assert [one.flops for one in own] == [one.flops / 4 for one in whole]
    assert layer(chunk=256).saved == layer().saved
    assert cores(layer(chunk=2048)) == whole


def test_packed_documents_are_sequences_of_their_own_and_all_else_is_as_before() -> None:
    own, whole = cores(layer(documents=250)), cores(layer())
    assert [one.flops for one in own] == [one.flops / 4 for one in whole]
    assert layer(documents=250).saved == layer().saved
    assert cores(layer(documents=4096)) == whole, "longer than a sequence"


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ({"documents": 64, "chunk": 256}, "documents = 64, chunk = 256"),
        ({"documents": 64, "attention": "standard"}, "save nothing if scores are stored"),
        ({"chunk": 256, "causal": False}, "chunk needs a causal model"),
        ({"chunk": 300}, "chunk = 300 does not divide seq = 1024"),
        ({"window": -1}, "window = -1 must not be negative"),
        (
            {"latent": Latent(kv=64, rotary=16), "kv_heads": 4},
            "latent attention needs kv_heads = heads",
        ),
        ({"latent": Latent(kv=64, rotary=32)}, "leaves nothing of a head"),
    ],
)
def test_attention_that_cannot_be_is_refused(shape: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Transformer(**(PLAIN | shape))


def test_chunks_divided_along_the_sequence_are_refused() -> None:
    with pytest.raises(InputError, match="how ranks divide attention in pieces is not known"):
        layer(chunk=256, sharding=Sharding(cp=2))


@given(st.sampled_from([2, 4]), st.sampled_from([0, 100, 1024]))
def test_context_parallelism_divides_a_band_evenly(cp: int, window: int) -> None:
    whole, part = cores(layer(window=window)), cores(layer(window=window, sharding=Sharding(cp=cp)))
    for backward in (False, True):
        shares, all_of_it = (
            sum(one.flops for one in own if one.backward == backward) for own in (part, whole)
        )
        assert shares * cp == all_of_it


# --- Heads ----------------------------------------------------------------------------------------


def test_heads_may_be_wider_than_the_hidden_state_together() -> None:
    # Qwen3: 8 heads of 128 on 256 columns.
    model = Transformer(**(PLAIN | {"head": 128, "kv_heads": 2}))
    attention = 256 * 128 * (8 + 2 + 2) + 8 * 128 * 256
    dense = attention + 2 * 256 * 512 + 2 * 256
    assert block("dense", counts.whole(model, 1)).count == dense


def test_narrower_values_save_their_products_and_bytes() -> None:
    narrow, even = layer(value_head=16), layer()
    flops = [sum(one.flops for one in cores(own)) for own in (narrow, even)]
    # Forward 2 d + 2 v, backward 6 d + 4 v, for 32 and 16.
    assert flops[0] / flops[1] == (8 * 32 + 6 * 16) / (14 * 32)
    # V, and the output that the projection behind keeps.
    assert even.saved - narrow.saved == 2 * 1024 * 2 * 8 * 16


def test_norms_of_heads_keep_q_and_k_and_have_a_gain_each() -> None:
    plain, own, bare = layer(), layer(qk_norm="rmsnorm"), layer(qk_norm="l2")
    assert own.count - plain.count == 2 * 32
    assert bare.count == plain.count
    assert own.saved - plain.saved == bare.saved - plain.saved == 2 * 1024 * (256 + 256)


@pytest.mark.parametrize("tp", [1, 2])
def test_heads_with_gains_of_their_own_share_them_among_ranks(tp: int) -> None:
    plain, own = (
        layer(qk_norm=norm, kv_heads=4, normalisation="layernorm", sharding=Sharding(tp=tp))
        for norm in ("none", "heads")
    )
    assert own.count - plain.count == (8 + 4) * 32 / tp


def test_sinks_are_one_parameter_a_head_and_change_no_products() -> None:
    assert layer(sinks=True).count - layer().count == 8
    assert (
        layer(sinks=True, sharding=Sharding(tp=2)).count - layer(sharding=Sharding(tp=2)).count == 4
    )
    assert layer(sinks=True).forward == layer().forward


# --- Latents --------------------------------------------------------------------------------------

NARROW: dict[str, Any] = dict(head=48, value_head=32, latent=Latent(query=96, kv=64, rotary=16))


def test_latent_attention_has_the_products_and_parameters_of_its_paper() -> None:
    # DeepSeek-AI 2024, equations 9 to 19: W_DQ, W_UQ and W_QR, W_DKV and W_KR, W_UK and W_UV, W_O.
    a, h, s = 8, 256, 1024
    down, up = h * 96 + h * (64 + 16), 96 * a * 48 + 64 * a * (32 + 32)
    weights = down + up + a * 32 * h + 2 * h * 512
    own = layer(**NARROW)
    assert own.count == weights + 96 + 64 + 2 * h
    assert products(own) == 2 * s * weights
    assert sum(one.flops for one in cores(own)) == s * s * a * (4 * 48 + 3 * 32)


def test_without_a_latent_of_queries_they_come_from_the_hidden_state() -> None:
    direct = layer(**(NARROW | {"latent": Latent(kv=64, rotary=16)}))
    assert layer(**NARROW).count - direct.count == 256 * 96 + 96 * 8 * 48 + 96 - 256 * 8 * 48
    # Its two latents (before and after the norm) are no longer kept.
    assert layer(**NARROW).saved - direct.saved == 2 * 1024 * 2 * 96


def test_latents_as_wide_as_the_heads_add_only_their_own_matrices() -> None:
    # kv = a (nope + v), no rotary part, q direct: full attention behind a further h x kv matrix.
    wide = layer(latent=Latent(kv=512, rotary=0))
    assert products(wide) - products(layer()) == 2 * 1024 * 512 * 512
    assert cores(wide) == cores(layer())


def test_latent_attention_keeps_its_latents_and_heads() -> None:
    s, a, h, f = 1024, 8, 256, 512
    own = layer(fusion=Fusion(norm=True, rotary=True), **NARROW).saved
    latents = 2 * (96 + 64)
    heads = a * (48 + 48 + 32 + 32)
    # Norms and the linears' inputs, latents, Q K V and the output; the statistics; both gelu's.
    assert own == 2 * s * (4 * h + latents + heads + 2 * f) + 4 * s * a


@pytest.mark.parametrize("sp", [False, True])
def test_tensor_parallelism_divides_heads_and_repeats_the_down_projections(sp: bool) -> None:
    sharding = Sharding(tp=4, sequence_parallel=sp)
    whole, part = layer(**NARROW), layer(sharding=sharding, **NARROW)
    down = 2 * 1024 * 256 * (96 + 64 + 16)
    repeated = down if not sp else down / 4
    assert products(part) == (products(whole) - down) / 4 + repeated
    gathered = {
        item.name: item.bytes
        for item in part.forward
        if isinstance(item, Collective) and item.kind == "all_gather"
    }
    if sp:
        # Latents are gathered, not hidden states.
        assert gathered["q up all-gather"] == 2 * 1024 * 96
        assert gathered["kv up all-gather"] == 2 * 1024 * 64
        assert gathered["rotary keys"] == 2 * 1024 * 16
    else:
        assert not gathered


def test_a_ring_carries_keys_and_values_of_their_own_widths() -> None:
    own = layer(sharding=Sharding(cp=4), **NARROW)
    sent = [item.collective.bytes for item in own.forward if hasattr(item, "collective")]
    assert sent == [2 * 1024 * 8 * (48 + 32)]


def test_variants_mix_kinds_of_attention() -> None:
    # gpt-oss: every other layer sees 128 keys.
    mixed = Transformer(
        **(PLAIN | {"layers": 2, "pattern": "sliding, dense"}),
        blocks={"sliding": {"kind": "dense", "window": 128}},
    )
    run = counts.whole(mixed, 1)
    windows = [cores(block(kind, run))[0].window for kind in mixed.kinds]
    assert windows == [128, 0]
    whole = replace(mixed, pattern="dense", blocks={})
    assert counts.model_flops(mixed, 1) < counts.model_flops(whole, 1)


@pytest.mark.parametrize(("causal", "passes"), [(True, 8 + 9), (False, 6 + 5)])
def test_transformers_scores_are_scaled_chosen_masked_and_normalised_by_an_operation_each(
    causal: bool, passes: int
) -> None:
    own = layer(attention="standard", causal=causal, fusion=Fusion(added_mask=True))
    kernels = kernels_of((*own.forward, *own.backward))
    moved = sum(kernel.bytes for kernel in kernels if kernel.name in ("softmax", "softmax grad"))
    assert moved == passes * 8 * 1024**2 * 2


# --- Rotary embedding -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fusion", "passes", "launches"),
    [
        (Fusion(rotary=True), 2, 2),
        (Fusion(compiled=True), 2, 1),
        (Fusion(), 2 + 2 + 3 + 1 + 2, 10),  # two products, a sum, half negated, joined
        (Fusion(complex_rotary=True), 3 + 4 + 3, 6),  # to fp32, a product, back
        (Fusion(complex_rotary=True, compiled=True), 10, 6),
    ],
)
def test_what_rotation_reads_and_writes(fusion: Fusion, passes: int, launches: int) -> None:
    own = layer(fusion=fusion, kv_heads=2)
    for items in (own.forward, own.backward):
        (one,) = (k for k in kernels_of(items) if k.name == "rotary")
        assert isinstance(one, MemoryBound)
        assert (one.bytes, one.launches) == (passes * 2 * 1024 * (256 + 64), launches)


@pytest.mark.parametrize(
    ("name", "microseconds"),
    [
        ("rotary", 2 * (32.0 + 12.2 + 42.0 + 23.8 + 34.8)),
        ("attention rms norm", 29.2 + 26.4 + 15.1 + 1.6 + 1.6 + 32.6 + 18.2 + 25.1),
    ],
)
def test_single_operations_take_what_qwen_s_took_on_h100(name: str, microseconds: float) -> None:
    """16 sequences of 559 tokens of Qwen1.5-0.5B (traces/tracelens): medians of each kernel."""
    own = layer(hidden=1024, heads=16, kv_heads=16, seq=16 * 559, fusion=Fusion())
    (one,) = (kernel for kernel in kernels_of(own.forward) if kernel.name == name)
    assert 1e6 * kernel_time(one, device.load("h100-80gb-sxm")) == pytest.approx(
        microseconds, rel=0.12
    )


@pytest.mark.parametrize(
    ("shape", "tp", "copied"),
    [
        ({"kv_heads": 2}, 1, 256),
        ({"kv_heads": 2, "qk_norm": "rmsnorm"}, 1, 256 + 64),
        ({"kv_heads": 2}, 2, 0),  # one group on a rank: its queries lie side by side
        ({}, 1, 0),
    ],
    ids=str,
)
def test_queries_that_share_keys_are_copied_out_of_a_joined_projection(
    shape: dict[str, Any], tp: int, copied: int
) -> None:
    own = [
        layer(
            sharding=Sharding(tp=tp),
            fusion=Fusion(norm=True, rotary=True, query_copies=copies),
            **shape,
        )
        for copies in (False, True)
    ]
    moved = [
        sum(k.strided for k in kernels_of(one.forward) if hasattr(k, "strided")) for one in own
    ]
    assert moved == [0, 1024 * copied]
    assert own[0].backward == own[1].backward


@pytest.mark.parametrize(
    ("name", "backward", "milliseconds"),
    [
        ("gb200", False, 0.210),
        ("gb200", True, 0.465),
        ("gb300", False, 0.202),
        ("gb300", True, 0.442),
    ],
)
def test_a_window_on_blackwell_takes_as_long_as_it_was_measured(
    name: str, backward: bool, milliseconds: float
) -> None:
    """Two sequences of 4,096 tokens with 128 heads of 64 and a window of 128 (cudnn-frontend,
    benchmark/sdpa_benchmark_training/results/gpt_oss, 2026-04-24)."""
    own = device.load(name)
    shape = dict(batch=2, heads=128, kv_heads=128, q=4096, kv=4096, window=128, backward=backward)
    seconds = attention_time(
        kernel(**shape),
        own.attention["cudnn"],
        peak=own.peak_rate("bf16"),
        sms=own.sms,
        bandwidth=own.memory_bandwidth,
    )
    assert seconds == pytest.approx(milliseconds * 1e-3, rel=0.15)


def test_fused_attention_moves_q_k_v_and_the_output_once_forward_and_twice_back() -> None:
    sizes: dict[str, Any] = {"batch": 3, "heads": 4, "kv_heads": 2, "q": 8, "kv": 16}
    kernel = Attention(name="core", head=6, value_head=5, causal=True, **sizes)
    q, k, v, out = 4 * 8 * 6, 2 * 16 * 6, 2 * 16 * 5, 4 * 8 * 5
    assert kernel.bytes == 3 * (q + k + v + out) * 2
    assert replace(kernel, backward=True).bytes == 2 * kernel.bytes
