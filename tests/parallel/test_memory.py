"""Memory of a rank: hand counts, schedules' closed forms, published and measured peaks."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.model.ends import embedding_work, head_work
from sim.model.execution import Sharding
from sim.model.kernels import Allocator, Fusion, LayerWork
from sim.model.layers import layer_work
from sim.model.transformer import Transformer, load
from sim.parallel import memory
from sim.parallel.memory import rank_memory, state, warm_up

BARE = Allocator(workspace=0.0, lazy_state=False)
LAYER = LayerWork(saved=10.0, transient=3.0, parameters=100.0)


def plain(gradients="fused"):
    return state(precision="fp16", gradients=gradients)


# --- State ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "total"),
    [
        # Megatron-LM's fp16: weights, gradients, fp32 weights, two moments.
        ({"precision": "fp16", "gradients": "buffer"}, 2 + 2 + 12),
        # Its bf16 accumulates in fp32 (Korthikanti et al. 2022; Megatron-LM's theoretical memory).
        ({"precision": "bf16", "gradients": "fused"}, 2 + 4 + 12),
        # ZeRO-1 of the same over four: 6 + 12 / dp.
        ({"precision": "bf16", "gradients": "fused", "zero": 1, "dp": 4}, 6 + 3),
        ({"precision": "bf16", "gradients": "fused", "zero": 2, "dp": 4}, 2 + 1 + 3),
        ({"precision": "bf16", "gradients": "fused", "zero": 3, "dp": 4}, 18 / 4),
        ({"precision": "fp32", "gradients": "grad"}, 16),
        ({"precision": "fp32", "gradients": "grad", "optimizer": "sgd"}, 12),
    ],
)
def test_bytes_a_parameter_add_up_as_published(options, total) -> None:
    assert sum(state(**options).parts(1.0).values()) == total


NANOTRON = Allocator(half_gradients=True, gather_buffers=2, gather_copies=True, workspace=0.0)


@pytest.mark.parametrize(("dp", "total"), [(1, 18), (8, 20)])
def test_nanotron_keeps_half_gradients_beside_fp32_ones_under_data_parallelism(dp, total) -> None:
    kept = state(precision="bf16", gradients="fp32-buffer", dp=dp, allocator=NANOTRON)
    assert rank_memory([[LAYER]], kept=kept, allocator=NANOTRON).rest == 100 * total


@given(st.sampled_from([2, 4, 8, 64]))
def test_zero_1_of_nanotron_leaves_ten_and_fourteen_over_dp_bytes_a_parameter(dp) -> None:
    # 8 + 12 / dp of parts, and 2 + 2 / dp of flat copies for the all-gather.
    kept = state(precision="bf16", gradients="fp32-buffer", zero=1, dp=dp, allocator=NANOTRON)
    rest = rank_memory([[LAYER]], kept=kept, allocator=NANOTRON).rest
    assert rest == pytest.approx(100 * (10 + 14 / dp))


# --- Activations in flight -----------------------------------------------------------------------


def test_tiny_1f1b_is_countable_by_hand() -> None:
    found = rank_memory([[LAYER] * 2], kept=plain(), allocator=BARE, stages=4, microbatches=8)
    assert found.parts["weights"] == 2 * 100 * 2
    assert found.parts["activations"] == 4 * 2 * 10
    assert found.parts["transient"] == 3
    assert found.total == 18 * 200 + 80 + 3


@given(st.integers(1, 16), st.integers(1, 64))
def test_1f1b_keeps_as_many_microbatches_as_stages_follow(stages, microbatches) -> None:
    ahead = [warm_up("1f1b", stage, stages, microbatches) for stage in range(stages)]
    assert ahead == [min(stages - stage, microbatches) for stage in range(stages)]
    assert warm_up("gpipe", 0, stages, microbatches) == microbatches


def activations(stages: int, chunks: int, microbatches: int, stage: int = 0) -> float:
    found = rank_memory(
        [[LAYER]] * chunks,
        kept=plain(),
        allocator=BARE,
        schedule="interleaved",
        stage=stage,
        stages=stages,
        microbatches=microbatches,
    )
    return found.parts["activations"]


@given(st.integers(2, 8), st.integers(2, 4), st.integers(2, 5))
def test_interleaving_costs_what_korthikanti_section_4_2_3_says(stages, chunks, groups) -> None:
    # L (1 + (p - 1) / (p m)) layers on the first stage, against L without interleaving.
    layers = stages * chunks
    expected = layers * (1 + (stages - 1) / (stages * chunks))
    assert activations(stages, chunks, groups * stages) == pytest.approx(10 * expected)


@given(st.integers(2, 8), st.integers(2, 4))
def test_later_stages_keep_less(stages, chunks) -> None:
    kept = [activations(stages, chunks, 4 * stages, stage) for stage in range(stages)]
    assert all(earlier > later for earlier, later in pairwise(kept))


@given(
    st.integers(2, 5),
    st.integers(2, 4),
    st.integers(2, 6),
    st.lists(st.integers(0, 9), min_size=4, max_size=4),
)
def test_uneven_chunks_peak_where_a_full_play_of_the_schedule_peaks(p, v, groups, sizes) -> None:
    sizes, m = [float(size) for size in sizes[:v]], groups * p
    ahead = warm_up("interleaved", 0, p, m, v)
    alive, peak = 0.0, 0.0
    for index in range(m * v + ahead):
        alive += sizes[(index // p) % v] if index < m * v else 0.0
        peak = max(peak, alive)
        if index >= ahead - 1:
            alive -= sizes[v - 1 - ((index - ahead + 1) // p) % v]
    assert memory._most_alive(sizes, ahead, p, m) == pytest.approx(peak)


# --- Moments -------------------------------------------------------------------------------------


def test_the_worst_moment_is_the_optimizer_step_when_activations_are_few() -> None:
    kept = plain("buffer")
    found = rank_memory([[LAYER]], kept=kept, allocator=BARE)
    # fp16 gradients are cast to fp32, four bytes for each of 100 parameters.
    assert found.parts["optimizer step"] == 400
    assert "activations" not in found.parts
    many = LayerWork(saved=1000.0, parameters=100.0)
    assert "activations" in rank_memory([[many]], kept=kept, allocator=BARE).parts


def test_tensors_in_the_communication_queue_are_alive_until_the_window_closes() -> None:
    llama = load("llama2-7b")
    layer = layer_work(
        llama,
        microbatch=1,
        sharding=Sharding(tp=8, sequence_parallel=True),
        precision="bf16",
        fusion=Fusion(),
    )
    whole = llama.seq * llama.hidden * 2
    queues = [
        rank_memory([[layer] * 32], kept=plain(), allocator=Allocator(run_ahead=ahead)).parts.get(
            "communication"
        )
        for ahead in (0, 10**9)
    ]
    assert queues == [None, 32 * 2 * whole]


def test_fits_counts_fragments_against_the_capacity() -> None:
    kept = plain()
    found = rank_memory([[LAYER]], kept=kept, allocator=Allocator(workspace=0.0))
    assert found.fragmented == 3
    assert found.fits(found.reserved)
    assert not found.fits(found.reserved - 1)
    assert found.largest == "optimizer"


# --- Measured peaks ------------------------------------------------------------------------------

MEGATRON = Fusion(bias_gelu=True, masked_softmax=True, bias_dropout_add=True, gradients="buffer")


@pytest.mark.parametrize(
    ("shape", "b", "layers", "chunks", "gigabytes"),
    [
        # Qi et al. 2024 (arXiv 2401.10241), table 4: 1F1B and interleaved, 1.5B and 6.2B.
        ((2304, 24), 6, 3, 1, 30),
        ((2304, 24), 6, 1, 3, 40),
        ((4096, 32), 3, 4, 1, 39),
        ((4096, 32), 3, 1, 4, 48),
    ],
)
def test_peaks_of_zero_bubble_table_4_within_three_percent(
    shape, b, layers, chunks, gigabytes
) -> None:
    hidden, heads = shape
    model = Transformer(
        layers=layers, hidden=hidden, heads=heads, ffn=4 * hidden, vocab=50304, seq=1024
    )
    layer = layer_work(model, microbatch=b, sharding=Sharding(), precision="fp16", fusion=MEGATRON)
    # The second stage is the fullest: the first holds a layer fewer.
    found = rank_memory(
        [[layer] * layers] * chunks,
        kept=plain("buffer"),
        schedule="interleaved" if chunks > 1 else "1f1b",
        stage=1,
        stages=8,
        microbatches=24,
    )
    assert found.total / 1e9 == pytest.approx(gigabytes, rel=0.03)


TRANSFORMER_ENGINE = Fusion(norm=True, rotary=True, swiglu=True, gradients="fused")


@pytest.mark.parametrize(("tp", "dp", "gibibytes"), [(2, 4, 60.68), (4, 2, 39.07), (8, 1, 28.29)])
def test_peaks_of_megatron_core_on_b200_within_one_percent(tp, dp, gibibytes) -> None:
    # SimuMax B200 v1.2, measured: 12 layers of Llama 3 70B, distributed optimizer.
    model = load("llama3-70b")
    options = {
        "microbatch": 1,
        "sharding": Sharding(tp=tp, sequence_parallel=True),
        "precision": "bf16",
        "fusion": TRANSFORMER_ENGINE,
    }
    short = Transformer(
        layers=12,
        hidden=model.hidden,
        heads=model.heads,
        kv_heads=model.kv_heads,
        ffn=model.ffn,
        gated_mlp=True,
        vocab=model.vocab,
        seq=4096,
        tied_embeddings=False,
        positions="rotary",
        normalisation="rmsnorm",
        bias=False,
        dropout=False,
        attention="flash",
    )
    chunk = [
        embedding_work(short, **options),
        *[layer_work(short, **options)] * 12,
        head_work(short, **options),
    ]
    found = rank_memory([chunk], kept=state(precision="bf16", zero=1, dp=dp))
    assert found.total / 2**30 == pytest.approx(gibibytes, rel=0.01)


def test_gradients_that_grow_share_the_memory_that_activations_leave() -> None:
    """Three layers of 10 saved, 3 transient and 4 x 2.5 gradient bytes: 30 + 3 at any layer."""
    chunk = [LayerWork(saved=10.0, transient=3.0, parameters=2.5)] * 3
    kept = state(precision="fp32", gradients="fresh")
    found = rank_memory([chunk], kept=kept, allocator=BARE)
    assert found.total == 7.5 * 12 + 33
    later = rank_memory([chunk], kept=kept, allocator=BARE, microbatches=2)
    assert later.total == 7.5 * 16 + 33


def test_ddp_keeps_the_gradients_of_its_buckets() -> None:
    assert state(precision="fp32", gradients="fresh").growing
    assert not state(precision="fp32", gradients="fresh", dp=2).growing


def test_accumulated_gradients_lie_beside_ddps_buckets() -> None:
    chunk = [LayerWork(saved=10.0, transient=3.0, parameters=2.5)] * 3
    kept = state(precision="fp32", gradients="fresh", dp=2)
    totals = [
        rank_memory([chunk], kept=kept, allocator=BARE, microbatches=count).total
        for count in (1, 2)
    ]
    assert totals == [7.5 * 16 + 33, 7.5 * 20 + 33]


def test_a_tied_gradient_waits_for_the_embeddings_and_for_their_sum() -> None:
    """At the embedding its own 3, the waiting 50 and the sum 50 outweigh three layers saved."""
    chunk = [LayerWork(saved=10.0, transient=3.0, parameters=2.5)] * 3
    kept = state(precision="fp32", gradients="fresh", dp=2)
    found = rank_memory([chunk], kept=kept, allocator=BARE, tied=50.0)
    assert found.total == 7.5 * 16 + 10 + 3 + 100
