"""Compression: bytes on the wire, what is lost, and that error feedback gives it back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sim
from sim import run
from sim.collectives.compression import Compression, matrix_shape
from sim.config.errors import InputError
from sim.hardware import device, stack
from sim.jobs.sharing.averaging import Averaging
from sim.jobs.sharing.loading import from_scenario
from sim.jobs.sharing.methods.all_reduce import AllReduce
from sim.jobs.sharing.run import build
from sim.jobs.sharing.tables import Learning
from sim.jobs.sharing.worker import mean
from sim.jobs.sharing.worker_step import worker_step
from sim.jobs.sharing.workload import Workload
from sim.model.reading import load
from tests.jobs.sharing.pools import QUADRATIC, SIZE, compressed, outcome, setup, trained

KINDS = ("fp16", "int8", "fp4", "topk", "randomk", "powersgd", "onebit")
ELEMENTS = SIZE / 4
V100 = device.load("v100-16gb-sxm")


@pytest.mark.parametrize(
    ("kind", "options", "share"),
    [
        ("fp16", {}, 1 / 2),
        ("int8", {}, 1 / 4),
        ("fp4", {}, 1 / 8),
        ("onebit", {}, 1 / 32),
        ("topk", {"ratio": 0.01}, 0.02),  # a value and an index each
        ("randomk", {"ratio": 0.01}, 0.01),
        ("powersgd", {"rank": 2}, 2 * 2 / ELEMENTS**0.5),
    ],
)
def test_bytes_on_the_wire(kind, options, share):
    sent = Compression(kind=kind, **options).bytes(ELEMENTS)
    assert sent == pytest.approx(share * SIZE, rel=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_links_carry_what_compression_leaves(kind):
    compression = Compression(kind=kind)
    small = outcome("parameter_server", mode="async", compression=compression)
    pulls = 80 * SIZE  # weights come back whole
    both_links = 2 * (80 * compression.bytes(ELEMENTS) + pulls)
    assert small.bytes == pytest.approx(both_links, rel=1e-9)


@settings(max_examples=30, deadline=None)
@given(kind=st.sampled_from([kind for kind in KINDS if kind != "fp16"]), seed=st.integers(0, 50))
def test_what_is_sent_and_the_error_add_up(kind, seed):
    vector = np.random.default_rng(seed).standard_normal(30)
    error = np.random.default_rng(seed + 1).standard_normal(30)
    sent, left = compressed(kind, ratio=0.1, rank=2).encode(vector, error, (seed, 0))
    assert sent + left == pytest.approx(vector + error, abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 50))
def test_a_low_rank_matrix_survives_powersgd(seed):
    generator = np.random.default_rng(seed)
    matrix = generator.standard_normal((6, 2)) @ generator.standard_normal((2, 6))
    sent = Compression(kind="powersgd", rank=2).lossy(matrix.ravel(), (seed,))
    assert sent == pytest.approx(matrix.ravel(), abs=1e-9)


def test_without_compression_everything_is_sent():
    vector = np.arange(5.0)
    assert Compression(kind="none").lossy(vector) is vector


def test_top_k_keeps_the_largest():
    vector = np.arange(-5.0, 5.0)
    sent = Compression(kind="topk", ratio=0.3).lossy(vector)
    assert set(np.nonzero(sent)[0]) == {0, 1, 2} or set(np.abs(sent[sent != 0])) == {5.0, 4.0}


def test_error_feedback_makes_one_bit_learn_better():
    learning = Learning(task="quadratic", rate=0.05, noise=0.0, size=20)
    losses = [
        outcome(
            "all_reduce",
            learning=learning,
            steps=300,
            compression=Compression(kind="topk", ratio=0.05, feedback=feedback),
        ).loss
        for feedback in (True, False)
    ]
    assert losses[0] < 0.5 * losses[1]


def test_what_cannot_be_reduced_is_gathered():
    reduced, gathered = (
        outcome("all_reduce", compression=Compression(kind=kind, ratio=0.02), workers=16)
        for kind in ("randomk", "topk")
    )
    assert gathered.bytes > 4 * reduced.bytes


def test_encoding_takes_time_on_the_device():
    kinds = ("none", "topk")
    plain, coded = (outcome("all_reduce", compression=Compression(kind=kind)) for kind in kinds)
    assert plain.shares["compression"] == 0.0 < coded.shares["compression"]


def test_a_rank_larger_than_any_matrix_is_refused():
    rows, _ = matrix_shape(int(ELEMENTS))
    with pytest.raises(InputError, match=f"set rank to at most {(rows - 1) // 2}"):
        outcome("all_reduce", compression=Compression(kind="powersgd", rank=rows))
    most = Compression(kind="powersgd", rank=(rows - 1) // 2)
    outcome("all_reduce", steps=1, compression=most)


@pytest.mark.parametrize("kind", ["int8", "fp4", "onebit"])
@pytest.mark.parametrize("workers", [2, 4, 16])
def test_what_is_summed_in_rounds_carries_its_share_of_an_all_reduce(kind, workers):
    """Scattered, reduced and gathered, S' loads links as an all-reduce of S'; small ones of many
    ranks would go by a tree."""
    plain, coded = (
        outcome("all_reduce", compression=Compression(kind=k), workers=workers)
        for k in ("none", kind)
    )
    share = Compression(kind=kind).bytes(ELEMENTS) / SIZE
    assert coded.bytes == pytest.approx(share * plain.bytes, rel=0.12)
    assert coded.time < plain.time


@pytest.mark.parametrize("kind", ["int8", "fp4", "onebit"])
def test_what_sums_lose_when_they_are_encoded_again_waits_for_the_next(kind):
    pool = build(setup("all_reduce", learning=QUADRATIC, compression=Compression(kind=kind)))
    averaging, asked, read = Averaging(pool), 0.0, 0.0
    for step in range(50):
        values = {r: np.random.default_rng((step, r)).standard_normal(10) for r in range(4)}
        asked, read = asked + mean(values), read + averaging.mean(values)
    assert np.abs(asked - read).max() < (0.1 if kind == "int8" else 5.0)


def test_power_sgd_sends_factors_of_every_layers_matrix():
    """Vogels et al. 2019, table 11: ResNet-18 differs, so ours is ResNet-50 by hand: of its 54
    matrices those whose factors are smaller, the classifier of 2048 x 1000 among them."""
    step = worker_step(load("resnet50"), 32, AllReduce(), stack.load("pytorch-ddp"), V100)
    shapes = step.whole.shapes
    assert len(shapes) == 54
    assert (2048, 1000) in shapes
    assert (64 * 9, 64) in shapes
    rest = step.parameters - sum(rows * columns for rows, columns in shapes)
    factors = 2 * sum(rows + columns for rows, columns in shapes)
    sent = Compression(kind="powersgd", rank=2).message(step.parameters, 4.0, shapes)
    assert sent == pytest.approx(4.0 * (factors + rest))
    square = 2 * 2 * step.parameters**0.5 * 4.0
    assert sent > 5 * square  # what one matrix of all of them would send


def test_launches_cost_what_the_stack_says_so_that_not_every_layer_is_a_bucket():
    options = {"sharing.overlap": True, "sharing.steps": 4, "sharing.straggler": []}
    options["stack.launch_collective"] = "2 ms"
    small, usual, whole = (
        run(sim.load("all-reduce-ddp", {**options, "sharing.bucket": bucket})).time
        for bucket in ("1 B", "25 MiB", "1 GB")
    )
    assert usual < whole
    assert small - usual > 4 * 0.03  # 54 launches instead of 4, partly behind the backward pass


def test_small_messages_wait_for_their_kernels_to_be_launched():
    coded = Compression(kind="topk")
    slow, free = (Workload.plain(0.1, 1e3, launch=launch) for launch in (10e-6, 0.0))
    launched, moved = (
        outcome("all_reduce", workload=workload, compression=coded, steps=1)
        for workload in (slow, free)
    )
    assert launched.time - moved.time == pytest.approx(7 * 10e-6, rel=0.05)


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", KINDS)
def test_all_kinds_learn(kind):
    compression = compressed(kind, ratio=0.2, rank=2)
    result = outcome("all_reduce", learning=QUADRATIC, steps=300, compression=compression)
    assert result.curve[-1][2] < 0.3 * result.curve[0][2]


OVERLAPPED = {
    "DDP": ("all_reduce", {}),
    "layer by layer": ("parameter_server", {"mode": "bsp"}),
}


@pytest.mark.parametrize("variant", OVERLAPPED)
@pytest.mark.parametrize("kind", ["topk", "onebit"])
def test_overlap_changes_when_compressed_gradients_are_sent_and_not_what(variant, kind):
    method, options = OVERLAPPED[variant]
    options = options | dict(learning=QUADRATIC, compression=compressed(kind, ratio=0.3))
    plain, beside = (trained(method, overlap=overlap, **options) for overlap in (False, True))
    assert np.array_equal(plain.workers[0].weights, beside.workers[0].weights)
    coding = [
        sum(worker.seconds["compression"] for worker in pool.workers) for pool in (plain, beside)
    ]
    assert coding[1] == pytest.approx(coding[0], rel=1e-9)
    assert coding[0] > 0.0


def test_federated_hosts_compress_their_changes():
    """A top-k of the weights themselves would forget all the others."""
    learning = Learning(task="quadratic", rate=0.05, noise=0.0, size=20)
    compression = Compression(kind="topk", ratio=0.2)
    options = dict(learning=learning, compression=compression, period=5, steps=400)
    result = outcome("federated", **options)
    assert result.loss < 0.02 * result.curve[0][2]


def test_who_gathers_decodes_every_message():
    single, eight = (Compression(kind="topk").decode_bytes(1e6, n) for n in (1, 8))
    assert eight == 8 * single > 0.0


@pytest.mark.parametrize(
    ("method", "options", "said"),
    [
        ("data_parallel", {}, "as they are"),
        ("gossip", {"algorithm": "sgp"}, "push-sum needs whole sums"),
    ],
)
def test_compression_where_it_makes_no_sense_is_refused(method, options, said):
    with pytest.raises(ValueError, match=said):
        outcome(method, compression=Compression(kind="topk"), **options)


def test_powersgd_factors_each_matrix_by_itself_and_leaves_vectors_alone():
    """Low-rank matrices of unlike shapes and a vector come through; as one square they do not."""
    generator = np.random.default_rng(3)

    def low(rows, columns):
        return (
            generator.standard_normal((rows, 2)) @ generator.standard_normal((2, columns))
        ).ravel()

    shapes = ((12, 30), (30,), (20, 5, 3))
    vector = np.concatenate([low(12, 30), generator.standard_normal(30), low(20, 15)])
    powersgd = Compression(kind="powersgd", rank=2)
    assert powersgd.lossy(vector, (1,), shapes) == pytest.approx(vector, abs=1e-9)
    assert not np.allclose(powersgd.lossy(vector, (1,)), vector, rtol=1e-2)


def test_what_factors_are_not_smaller_than_goes_as_it_is():
    vector = np.random.default_rng(0).standard_normal(12)
    assert np.array_equal(
        Compression(kind="powersgd", rank=2).lossy(vector, (1,), ((3, 4),)), vector
    )


def test_a_group_factors_the_matrices_of_its_model():
    """Not the squarest matrix of 124M parameters: n x m of every layer."""
    keys = {"model": "gpt2-124m", "plan.tp": 2, "plan.pp": 4, "plan.dp": 2, "plan.zero": 0}
    keys |= {"plan.global_batch": 16, "plan.recompute": "none", "sharing.regions": None}
    group = from_scenario(sim.load("diloco-70b", keys)).workloads[0]
    assert (768, 4 * 768) in group.whole.shapes or (4 * 768, 768) in group.whole.shapes
    assert sum(rows * columns for rows, columns in group.whole.shapes) <= group.parameters
    factors = Compression(kind="powersgd", rank=4)
    sent = factors.message(group.parameters, 2.0, group.whole.shapes)
    assert sent > 5 * factors.bytes(group.parameters, 2.0)
