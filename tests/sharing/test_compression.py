"""Compression: bytes on the wire, what is lost, and that error feedback gives it back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.collectives.compression import Compression, matrix_shape
from sim.config.errors import InputError
from sim.sharing.tables import Learning
from tests.sharing.pools import QUADRATIC, SIZE, outcome, trained

KINDS = ("fp16", "int8", "topk", "randomk", "powersgd", "onebit")
ELEMENTS = SIZE / 4


@pytest.mark.parametrize(
    ("kind", "options", "share"),
    [
        ("fp16", {}, 1 / 2),
        ("int8", {}, 1 / 4),
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
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 50))
def test_what_is_sent_and_the_error_add_up(kind, seed):
    vector = np.random.default_rng(seed).standard_normal(30)
    error = np.random.default_rng(seed + 1).standard_normal(30)
    sent, left = Compression(kind=kind, ratio=0.1, rank=2).encode(vector, error, (seed, 0))
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


def test_a_rank_larger_than_the_matrix_is_refused():
    rows, _ = matrix_shape(int(ELEMENTS))
    with pytest.raises(InputError, match="larger than the matrix"):
        outcome("all_reduce", compression=Compression(kind="powersgd", rank=rows + 1))
    outcome("all_reduce", steps=1, compression=Compression(kind="powersgd", rank=rows))


@pytest.mark.parametrize("kind", KINDS)
def test_all_kinds_learn(kind):
    compression = Compression(kind=kind, ratio=0.2, rank=2)
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
    options = options | dict(learning=QUADRATIC, compression=Compression(kind=kind, ratio=0.3))
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
