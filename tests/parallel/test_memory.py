"""Memory of a rank: hand counts, closed forms, published and measured peaks."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.hardware import device as devices
from sim.hardware import stack as stacks
from sim.hardware.stack import Allocator, Stack
from sim.model.block import ALONE, Again, Block
from sim.model.execution import DENSE, Words
from sim.model.fusion import Fusion
from sim.model.kinds import is_layer
from sim.model.reading import load
from sim.model.transformer import Transformer
from sim.parallel.chunks import chunks_of
from sim.parallel.job import Job
from sim.parallel.memory import Memory, fullest, memories, memory, state_of
from sim.parallel.plan import Plan
from sim.parallel.schedule import table
from sim.parallel.step import training_step
from sim.program.memory_levels import levels_of, peaks
from tests.all_pairs import all_pairs

BARE = Allocator(workspace=0.0, lazy_state=False)
DEVICE = devices.load("h100-80gb-sxm")
BASE = stacks.load("megatron-lm-2021")


def stack(allocator: Allocator = BARE, *, fusion: Fusion | None = None, **fused: object) -> Stack:
    """A stack that allocates nothing beside tensors, unless told otherwise."""
    own = fusion or replace(BASE.fusion, **{"gradients": "fused", **fused})  # type: ignore[arg-type]
    return replace(BASE, allocator=allocator, fusion=own, balance="even")


def job(
    model: Transformer, software: Stack | None = None, *, kind: type[Job] = Job, **plan: object
) -> Job:
    usual = dict(global_batch=8, precision="fp16", dp=1)
    own, chosen = software or stack(), Plan(**(usual | plan))  # type: ignore[arg-type]
    chunks = chunks_of(model, own, chosen, DEVICE)
    return kind(model=model, plan=chosen, stack=own, device=DEVICE, chunks=chunks)


def on(own: Job, stage: int = 0) -> Memory:
    """The memory of a rank of one stage."""
    return memory(own, training_step(own), stage)


# --- Blocks by hand ------------------------------------------------------------------------------


def by_hand(saved: float, transient: float = 0.0, parameters: float = 0.0) -> Block:
    nothing: Mapping[str, tuple[()]] = dict.fromkeys(
        ("forward", "backward", "input_gradient", "weight_gradient", "recompute"), ()
    )
    return Block(
        kind="dense", saved=saved, freed=saved, held=0.0, transient=transient,
        parameters={DENSE: parameters},
        **nothing,
    )  # fmt: skip


BLOCK, NONE = by_hand(10.0, 3.0, 100.0), by_hand(0.0)
ALIKE = {"embedding": BLOCK, "dense": BLOCK, "head": BLOCK}
LAYERS = {"embedding": NONE, "dense": BLOCK, "head": NONE}


@dataclass(frozen=True)
class HandJob(Job):
    """A job whose blocks keep what they are told."""

    made: Mapping[str, Block] = field(default_factory=lambda: ALIKE)

    def block(self, kind: str, again: Again = ALONE, words: Words = "again") -> Block:
        return replace(self.made[kind], kind=kind)


def hand_job(
    count: int = 1,
    software: Stack | None = None,
    *,
    made: Mapping[str, Block] = ALIKE,
    tied: bool = False,
    **plan: object,
) -> Job:
    """So many layers, an embedding and a head."""
    small = Transformer(
        layers=count, hidden=2, heads=1, ffn=8, vocab=6, seq=1, tied_embeddings=tied
    )
    return replace(job(small, software, kind=HandJob, **plan), made=made)  # type: ignore[call-arg]


def test_a_tiny_1f1b_is_countable_by_hand() -> None:
    own = on(hand_job(4, pp=4))  # the first stage holds two blocks, and four microbatches of eight
    assert own.parts["weights"] == 2 * 100 * 2
    assert own.parts["activations"] == 4 * 2 * 10
    assert own.parts["transient"] == 3
    assert own.total == 18 * 200 + 80 + 3


NANOTRON = Allocator(half_gradients=True, gather_buffers=2, gather_copies=True, workspace=0.0)


def rest_of_nanotron(**plan: object) -> float:
    """Bytes a parameter between steps."""
    software = stack(NANOTRON, gradients="fp32-buffer")
    return on(hand_job(software=software, precision="bf16", **plan)).rest / 300


@pytest.mark.parametrize(("dp", "total"), [(1, 18), (8, 20)])
def test_nanotron_keeps_half_gradients_beside_fp32_ones_under_data_parallelism(dp, total) -> None:
    assert rest_of_nanotron(dp=dp) == pytest.approx(total)


@given(st.sampled_from([2, 4, 8, 64]))
def test_zero_1_of_nanotron_leaves_ten_and_fourteen_over_dp_bytes_a_parameter(dp) -> None:
    # 8 + 12 / dp of parts, and 2 + 2 / dp of flat copies for the all-gather.
    rest = rest_of_nanotron(zero=1, dp=dp, global_batch=64)
    assert rest == pytest.approx(10 + 14 / dp)


@given(st.sampled_from([2, 4, 8, 64]))
def test_deepspeeds_bf16_optimizer_shards_neither_gradients_nor_weights(dp) -> None:
    """bf16_optimizer.py: weights and gradients of 2 bytes, gradients of 4, and 12 / dp."""
    usual = stacks.load("megatron-deepspeed-2021")
    assert usual.running("fp16", where="here") is usual
    software = replace(usual.running("bf16", where="here"), balance="even")
    own = hand_job(software=software, precision="bf16", zero=1, dp=dp, global_batch=64)
    buffers = own.stack.allocator.workspace
    assert (on(own).rest - buffers) / 300 == pytest.approx(2 + 2 + 4 + 12 / dp)
    assert on(own).fragmented == 0


# --- Activations in flight -----------------------------------------------------------------------


def activations(stages: int, chunks: int, microbatches: int, stage: int = 0) -> float:
    own = hand_job(
        stages * chunks, made=LAYERS, pp=stages, interleave=chunks, global_batch=microbatches
    )
    return on(own, stage).parts["activations"]


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
    st.sampled_from(["interleaved", "looped-bfs", "zb-v", "dualpipev", "interleaved-zero-bubble"]),
    st.integers(2, 4),
    st.integers(2, 4),
    st.data(),
)
def test_uneven_chunks_peak_where_a_full_play_of_the_schedule_peaks(name, p, rounds, data) -> None:
    split = data.draw(st.lists(st.integers(1, 5), min_size=2 * p, max_size=2 * p))
    own = hand_job(
        sum(split), made=LAYERS, pp=p, layers=tuple(split), schedule=name, interleave=2,
        global_batch=2 * rounds * p,
    )  # fmt: skip
    program = training_step(own)
    for stage, order in enumerate(program.schedule.orders):
        size = [10.0 * chunk.layers for chunk in own.chunks[stage]]
        change = {"F": 1, "B": -1, "I": -1, "W": 0}  # by hand nothing is held between the halves
        alive = accumulate(change[action.kind] * size[action.chunk] for action in order)
        assert memory(own, program, stage).parts["activations"] == max(alive)


# --- Moments -------------------------------------------------------------------------------------


def test_the_worst_moment_is_the_optimizer_step_when_activations_are_few() -> None:
    own = on(hand_job(software=stack(gradients="buffer")))
    # fp16 gradients are cast to fp32, four bytes for each of 300 parameters.
    assert own.parts["optimizer step"] == 1200
    assert "activations" not in own.parts
    many = dict.fromkeys(ALIKE, by_hand(1000.0, parameters=100.0))
    assert "activations" in on(hand_job(software=stack(gradients="buffer"), made=many)).parts


def test_tensors_in_the_communication_queue_are_alive_until_the_window_closes() -> None:
    llama = load("llama2-7b")
    whole = llama.seq * llama.hidden * 2
    queues = [
        on(
            job(
                llama,
                stack(Allocator(run_ahead=ahead)),
                tp=8,
                pp=4,
                sequence_parallel=True,
            ),
            stage=1,
        ).parts.get("communication")
        for ahead in (0, 10**9)
    ]
    assert queues == [None, 8 * 2 * whole]


def test_fits_counts_fragments_against_the_capacity() -> None:
    own = on(hand_job(software=stack(Allocator(workspace=0.0))))
    assert own.fragmented == 3
    assert own.fits(own.reserved)
    assert not own.fits(own.reserved - 1)


FRESH = stack(gradients="fresh")
GROWING = dict.fromkeys(ALIKE, by_hand(10.0, 3.0, 2.5))


@pytest.mark.parametrize(
    ("dp", "micro_steps", "each"),
    # Under DDP gradients are views of its buckets, and those of earlier micro-steps lie beside.
    [(1, 1, 12), (1, 2, 16), (2, 1, 16), (2, 2, 20)],
)
def test_gradients_that_grow_share_the_memory_that_activations_leave(dp, micro_steps, each) -> None:
    """Three blocks of 10 saved, 3 transient and 4 x 2.5 gradient bytes: 30 + 3 at any block."""
    plan = dict(precision="fp32", dp=dp, global_batch=dp * micro_steps)
    assert on(hand_job(software=FRESH, made=GROWING, **plan)).total == 7.5 * each + 33


def test_a_tied_gradient_waits_for_the_embeddings_and_for_their_sum() -> None:
    """At the embedding its own 3, the waiting 48 and the sum 48 outweigh three blocks saved."""
    plan = dict(precision="fp32", dp=2, global_batch=2)
    own = hand_job(software=FRESH, made=GROWING, tied=True, **plan)
    assert on(own).total == 7.5 * 16 + 10 + 3 + 2 * (4 * 6 * 2)


# --- Closed forms --------------------------------------------------------------------------------


def in_flight(own: Job, stage: int) -> float:
    """Activations of the forward passes that are ahead of the backward ones: all m with GPipe, p -
    stage with 1F1B, 2 (p - stage - 1) + (v - 1) p + 1 chunks with interleaving."""
    plan, v = own.plan, own.plan.chunks
    p, m = plan.pp, plan.microbatches
    sizes = [sum(block.saved for block in own.blocks(chunk)) for chunk in own.chunks[stage]]
    if v == 1:
        return sizes[0] * (m if plan.schedule == "gpipe" else min(p - stage, m))
    ahead = min(2 * (p - stage - 1) + (v - 1) * p + 1, m * v)
    entering = [sizes[(index // p) % v] for index in range(m * v)]
    leaving = [sizes[v - 1 - (index // p) % v] for index in range(m * v - ahead)]
    changes = zip(entering[ahead:], leaving, strict=True)
    return max(accumulate((new - old for new, old in changes), initial=sum(entering[:ahead])))


def passing(own: Job, stage: int) -> float:
    """The worst moment of the backward pass of a chunk's equal layers, above what is in flight: the
    transients of the k-th or its whole gradients, beside those that are being scattered (ZeRO-2),
    its weights and the next one's (ZeRO-3)."""
    zero, chunk = own.plan.zero, own.chunks[stage][0]
    blocks = [block for block in own.blocks(chunk) if is_layer(block.kind)]
    each = max(blocks, key=lambda block: block.count)
    transient, whole = max(block.transient for block in own.blocks(chunk)), 2 * each.count
    moments = [
        max(transient, whole * (zero >= 2) - each.saved)
        + whole * (zero >= 2 and k > 0)
        + whole * (zero == 3) * min(len(blocks) - k, 2)
        - k * each.saved
        for k in range(len(blocks))
    ]
    return max(moments)


def closed_form(own: Job, stage: int) -> float:
    """State, and the worse of a pass, with all activations in flight, and the optimizer step."""
    state = state_of(own, DENSE)
    count = sum(block.count for chunk in own.chunks[stage] for block in own.blocks(chunk))
    stepping = count * (state.share(1) * state.update + state.gather)
    worst = max(in_flight(own, stage) + passing(own, stage), stepping)
    return sum(state.parts(count).values()) + worst


GPT = Transformer(
    layers=16, hidden=1024, heads=16, ffn=4096, vocab=256, seq=512, tied_embeddings=False
)
LARGE_ENDS = replace(GPT, vocab=128_000)


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize(("schedule", "chunks"), [("1f1b", 1), ("gpipe", 1), ("interleaved", 2)])
def test_memory_of_operations_is_the_closed_form(schedule, chunks, zero, recompute) -> None:
    # Given back behind every pass and reduced in every micro-step, as pipelines do when asked to.
    each_pass = {"no_sync": False} if zero >= 2 else {}
    each_pass |= {"reshard": True} if zero == 3 else {}
    own = job(
        GPT, pp=4, dp=2, global_batch=32, schedule=schedule, interleave=chunks, zero=zero,
        recompute=recompute, **each_pass,
    )  # fmt: skip
    totals = [each.total for each in memories(own, training_step(own))]
    expected = [closed_form(own, stage) for stage in range(4)]
    assert totals[1:3] == pytest.approx(expected[1:3], rel=1e-9)
    # Embedding and head have their worst moments apart from the layers', see below.
    assert totals == pytest.approx(expected, rel=0.005)


def test_a_layer_is_recomputed_when_what_the_head_kept_has_gone() -> None:
    """The closed form adds the recomputed layer's transients to the head's activations."""
    own = job(replace(GPT, vocab=8000), recompute="full")
    embedding, *_, layer, head = own.blocks(own.chunks[0][0])
    layers = embedding.saved + 16 * layer.saved
    moments = (layers + head.saved + head.transient, layers + layer.transient)
    held = on(own).rest
    assert on(own).total == pytest.approx(held + max(moments))
    assert closed_form(own, 0) == pytest.approx(held + layers + head.saved + layer.transient)


def test_the_embedding_needs_most_when_the_activations_of_its_microbatch_have_gone() -> None:
    """The closed form adds its transients to the activations of the layers behind it."""
    own = job(LARGE_ENDS, pp=4, global_batch=32)
    embedding, layer, *_ = own.blocks(own.chunks[0][0])
    assert embedding.transient > 2 * layer.transient
    each = embedding.saved + 4 * layer.saved
    moments = (
        4 * each + layer.transient,  # at the last of four forward passes
        3 * each + embedding.saved + embedding.transient,  # at the end of a backward pass
    )
    held = on(own).rest
    assert on(own).total == pytest.approx(held + max(moments))
    assert closed_form(own, 0) == pytest.approx(held + 4 * each + embedding.transient)


def test_zero_3_gathers_two_blocks_that_follow_each_other() -> None:
    """The closed form gathers the largest block twice, though only one is an embedding."""
    own = job(LARGE_ENDS, pp=4, dp=2, zero=3, reshard=True, no_sync=False, global_batch=64)
    embedding, layer, *_ = own.blocks(own.chunks[0][0])
    whole = on(own).parts["gathered weights"]
    assert whole == 2 * (embedding.count + layer.count)


def test_the_most_bytes_of_each_stage_are_the_totals_of_its_parts() -> None:
    for schedule in ("1f1b", "zb-v", "looped-bfs"):
        own = job(GPT, pp=4, dp=2, global_batch=32, schedule=schedule, interleave=2, zero=3)
        program = training_step(own)
        totals = [each.total for each in memories(own, program)]
        assert peaks(program).tolist() == pytest.approx(totals)
        assert fullest(memories(own, program)).total == max(totals)


@all_pairs(name=sorted(table()), zero=(0, 1, 2, 3), gradients=("fused", "fresh", "fp32-buffer"))
def test_a_step_leaves_what_it_found(name, zero, gradients) -> None:
    software = stack(replace(NANOTRON, gather_copies=False), gradients=gradients)
    sizes = dict(pp=2, dp=2, global_batch=16, schedule=name, interleave=table()[name].chunks or 2)
    for recompute in ("none", "full"):
        own = job(GPT, software, zero=zero, recompute=recompute, precision="bf16", **sizes)
        program = training_step(own)
        for stage in range(2):
            step = levels_of(program, stage)
            assert step.by_part(step.after[-1]) == step.by_part(step.after[0])


# --- Measured peaks ------------------------------------------------------------------------------

MEGATRON = Fusion(bias_gelu=True, masked_softmax=True, bias_dropout_add=True, gradients="buffer")


@pytest.mark.parametrize(
    ("shape", "b", "layers", "chunks", "gigabytes"),
    [
        # Qi et al. 2024 (arXiv 2401.10241), table 4: 1F1B and interleaved, 1.5B and 6.2B.
        ((2304, 24), 6, 22, 1, 30),
        ((2304, 24), 6, 22, 3, 40),
        ((4096, 32), 3, 30, 1, 39),
        ((4096, 32), 3, 30, 4, 48),
    ],
)
def test_peaks_of_zero_bubble_table_4_within_three_percent(
    shape, b, layers, chunks, gigabytes
) -> None:
    hidden, heads = shape
    model = Transformer(
        tied_embeddings=True,
        layers=layers,
        hidden=hidden,
        heads=heads,
        ffn=4 * hidden,
        vocab=50304,
        seq=1024,
    )
    software = stack(Allocator(), fusion=MEGATRON)
    own = job(model, software, pp=8, interleave=chunks, microbatch=b, global_batch=24 * b)
    # The second stage is the fullest: the first holds a layer fewer.
    assert on(own, 1).total / 1e9 == pytest.approx(gigabytes, rel=0.03)
    assert on(own, 1) == fullest(memories(own, training_step(own)))


TRANSFORMER_ENGINE = Fusion(norm=True, rotary=True, swiglu=True, gradients="fused")


@pytest.mark.parametrize(("tp", "dp", "gibibytes"), [(2, 4, 60.68), (4, 2, 39.07), (8, 1, 28.29)])
def test_peaks_of_megatron_core_on_b200_within_one_percent(tp, dp, gibibytes) -> None:
    # SimuMax B200 v1.2, measured: 12 layers of Llama 3 70B, distributed optimizer.
    model = replace(load("llama3-70b"), layers=12, seq=4096)
    software = stack(Allocator(), fusion=TRANSFORMER_ENGINE)
    own = job(model, software, tp=tp, dp=dp, zero=1, sequence_parallel=True, precision="bf16")
    assert on(own).total / 2**30 == pytest.approx(gibibytes, rel=0.01)


@pytest.mark.parametrize(("zero", "dp", "each"), [(0, 1, 2 + 4), (1, 4, 2 + 4 / 4), (1, 8, 2.5)])
def test_a_flat_step_lies_beside_what_activations_left(zero, dp, each) -> None:
    """DeepSpeed's stage 1: all gradients in flat buffers of half precision, a share of them in
    fp32; 6 + 16 / dp bytes a parameter with weights, gradients, masters and moments."""
    software = replace(
        stack(), fusion=Fusion(gradients="grad"), allocator=Allocator(flat_step=True)
    )
    own = hand_job(4, software, zero=zero, dp=dp)
    parameters = 4 * 100.0 + 2 * 100.0  # four layers, embedding and head
    assert on(own).fragmented == each * parameters
    state = sum(on(own).parts[name] for name in ("weights", "gradients", "optimizer"))
    assert state + on(own).fragmented == pytest.approx((6 + 16 / dp) * parameters)
