"""Layers over stages: published splits, and laws that every split keeps."""

from itertools import combinations_with_replacement
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.config.errors import InputError
from sim.parallel import layer_split

# --- Published splits ----------------------------------------------------------------------------


def test_llama3_405b_has_one_layer_fewer_at_both_ends():
    # arXiv 2407.21783, section 3.3.2: 126 layers on 16 stages.
    assert layer_split.split(126, 16, balance="ends") == (7, *[8] * 14, 7)


@pytest.mark.parametrize(("layers", "chunks"), [(22, 3), (30, 4)])
def test_zero_bubble_interleaves_one_layer_a_chunk(layers, chunks):
    # arXiv 2401.10241, table 3: the first chunk is the embedding alone, the last the head alone.
    split = layer_split.split(layers, 8, chunks, balance="ends")
    assert split == (0, *[1] * layers, 0)
    # Chunks of a stage are eight pieces apart.
    assert (sum(split[0::8]), sum(split[3::8])) == (chunks - 1, chunks)


def test_automodels_first_chunks_have_what_is_left():
    # DeepSeek-V3's 61 layers on 4 stages of 8 chunks.
    assert layer_split.split(61, 4, 8, balance="front") == (*[2] * 29, *[1] * 3)
    assert layer_split.split(64, 4, 8, balance="front") == layer_split.split(64, 4, 8)


def nanotron_blocks(layers, pp, layer_cost, head_cost):
    """nanotron's `build_model` in its own integers: layers of each rank, and the head's rank."""
    blocks = [("embedding", 0), *[("layer", layer_cost)] * layers, ("norm", 0), ("head", head_cost)]
    total, rank, running = layers * layer_cost + head_cost, 0, 0
    held, place = [0] * pp, 0
    for name, cost in blocks:
        running, place = running + cost, rank
        held[rank] += name == "layer"
        if running > total * ((rank + 1) / pp):
            rank += 1
    return held, place


@given(
    st.integers(1, 40),
    st.integers(1, 12),
    st.sampled_from([2048, 4096]),
    st.sampled_from([0, 32000, 49152, 131072]),
)
def test_threshold_is_nanotrons_rule(layers, pp, hidden, vocab):
    ffn = 8192 if hidden == 2048 else 14336
    layer_cost = 4 * hidden**2 + 3 * ffn * hidden
    held, last = nanotron_blocks(layers, pp, layer_cost, vocab * hidden)
    head = vocab * hidden / layer_cost
    if last == pp - 1 and 0 not in held[1:-1]:
        assert layer_split.by_threshold(layers, pp, head=head) == tuple(held)
    else:
        with pytest.raises(InputError):
            layer_split.by_threshold(layers, pp, head=head)


@pytest.mark.parametrize(
    ("layers", "head", "first"),
    [
        # First stages of nanotron's sweep by pp, from its memory at rest (nanotron_h100.csv).
        (16, 4.0, {2: 10, 4: 5, 8: 3, 16: 2}),
        (32, 2.207, {2: 18, 4: 9, 8: 5, 16: 3, 32: 2}),
    ],
)
def test_quota_fills_the_first_stage_as_nanotron_measured(layers, head, first):
    splits = {pp: layer_split.by_quota(layers, pp, head=head) for pp in first}
    assert {pp: held[0] for pp, held in splits.items()} == first
    assert all(0 not in held[:-1] for held in splits.values())


# --- Laws ----------------------------------------------------------------------------------------

heads = st.floats(0, 8).map(lambda cost: round(cost, 3))


@given(st.integers(1, 60), st.integers(1, 8), st.integers(1, 3), heads)
def test_every_layer_is_held_once(layers, stages, chunks, head):
    for name in get_args(layer_split.Balance):
        try:
            split = layer_split.split(layers, stages, chunks, balance=name, head=head)
        except InputError:
            continue
        assert len(split) == stages * chunks
        assert sum(split) == layers


@given(st.integers(3, 9), st.integers(1, 4), heads, heads)
def test_no_split_has_a_cheaper_worst_chunk_than_by_cost(layers, pieces, head, embedding):
    def worst(held):
        costs = [float(count) for count in held]
        costs[0] += embedding
        costs[-1] += head
        return max(costs)

    cuts = combinations_with_replacement(range(layers + 1), pieces - 1)
    every = [[b - a for a, b in zip((0, *cut), (*cut, layers), strict=True)] for cut in cuts]
    best = layer_split.by_cost(layers, pieces, head=head, embedding=embedding)
    assert worst(best) == pytest.approx(min(map(worst, every)), rel=1e-12)


@given(st.integers(1, 12), st.integers(1, 6), st.integers(1, 3))
def test_without_embedding_and_head_costs_a_dividing_split_is_even(each, stages, chunks):
    layers = each * stages * chunks
    even = layer_split.even(layers, stages, chunks)
    assert layer_split.by_cost(layers, stages, chunks) == even
    assert layer_split.explicit([each] * stages * chunks, layers, stages, chunks) == even
    assert even == (each,) * stages * chunks


@given(heads, heads)
def test_a_dearer_head_never_gets_more_layers(cheap, more):
    held = [layer_split.by_cost(32, 4, head=cost)[-1] for cost in (cheap, cheap + more)]
    assert held[1] <= held[0]


# --- Bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "options", "complaint"),
    [
        ((8, 16), {}, "16 stages or chunks but only 8 layers; use fewer"),
        ((8, 4, 4), {"balance": "cost"}, "16 stages or chunks but only 8 layers"),
        ((126, 16), {}, '126 layers do not divide by 16 stages; set balance = "ends" or "cost"'),
        ((30, 4), {"balance": "ends"}, None),
        ((32, 5), {}, '32 layers do not divide by 5 stages; set balance = "cost", or list'),
        ((24, 4, 5), {}, "24 layers do not divide by 4 stages of 5 chunks"),
        ((25, 4, 2), {}, "25 layers do not divide by 4 stages of 2 chunks"),
        ((24, 4), {"balance": "ends"}, 'do not divide by 4 stages; set balance = "even"'),
        ((24, 4), {"balance": [6, 6, 6]}, "3 counts for 4 stages; write 4 counts"),
        ((24, 4), {"balance": [6, 6, 6, 7]}, "add up to 25 but the model has 24"),
        ((24, 4), {"balance": [12, -1, 7, 6]}, "a chunk of -1 layers"),
        ((24, 4), {"balance": [12, 0, 6, 6]}, "only 24 layers"),
        ((24, 0), {}, "pp = 0"),
        ((0, 1), {}, "only 0 layers|0 layers do not divide"),
        ((24, 4), {"balance": "fair"}, "no balance named 'fair'; known: even, ends, cost"),
        ((4, 4), {"balance": "threshold", "head": 40.0}, "stay empty; use fewer stages"),
    ],
)
def test_a_split_that_does_not_come_out_says_what_would(arguments, options, complaint):
    if complaint is None:
        assert layer_split.split(*arguments, **options) == (7, 8, 8, 7)
        return
    with pytest.raises(InputError, match=complaint):
        layer_split.split(*arguments, **options)
