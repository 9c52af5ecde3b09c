"""Layers over stages: published splits, and laws that every split keeps."""

from itertools import combinations_with_replacement

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.config.errors import InputError
from sim.parallel import balance


def counts(split):
    return [chunk.layers for chunk in split]


# --- Published splits ----------------------------------------------------------------------------


def test_llama3_405b_has_one_layer_fewer_at_both_ends():
    # arXiv 2407.21783, section 3.3.2: 126 layers on 16 stages.
    split = balance.split(126, 16, balance="ends")
    assert counts(split) == [7, *[8] * 14, 7]
    assert [chunk.embedding for chunk in split] == [True] + [False] * 15
    assert [chunk.head for chunk in split] == [False] * 15 + [True]


@pytest.mark.parametrize(("layers", "chunks"), [(22, 3), (30, 4)])
def test_zero_bubble_interleaves_one_layer_a_chunk(layers, chunks):
    # arXiv 2401.10241, table 3: the first chunk is the embedding alone, the last the head alone.
    split = balance.split(layers, 8, chunks, balance="ends")
    assert counts(split) == [0, *[1] * layers, 0]
    assert sum(counts(balance.of_stage(split, 8, 0))) == chunks - 1
    assert sum(counts(balance.of_stage(split, 8, 3))) == chunks


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
        assert counts(balance.by_threshold(layers, pp, head=head)) == held
    else:
        with pytest.raises(InputError):
            balance.by_threshold(layers, pp, head=head)


@pytest.mark.parametrize(
    ("layers", "head", "first"),
    [
        # First stages of nanotron's sweep by pp, from its memory at rest (nanotron_h100.csv).
        (16, 4.0, {2: 10, 4: 5, 8: 3, 16: 2}),
        (32, 2.207, {2: 18, 4: 9, 8: 5, 16: 3, 32: 2}),
    ],
)
def test_quota_fills_the_first_stage_as_nanotron_measured(layers, head, first):
    found = {pp: counts(balance.by_quota(layers, pp, head=head)) for pp in first}
    assert {pp: held[0] for pp, held in found.items()} == first
    assert all(0 not in held[:-1] for held in found.values())


# --- Laws ----------------------------------------------------------------------------------------

heads = st.floats(0, 8).map(lambda cost: round(cost, 3))


@given(st.integers(1, 60), st.integers(1, 8), st.integers(1, 3), heads)
def test_every_layer_is_held_once(layers, stages, chunks, head):
    for name in ("even", "ends", "cost", "threshold", "quota"):
        try:
            split = balance.split(layers, stages, chunks, balance=name, head=head)
        except InputError:
            continue
        assert len(split) == stages * chunks
        assert sum(counts(split)) == layers
        assert [chunk.embedding for chunk in split].index(True) == 0
        assert [chunk.head for chunk in split].index(True) == len(split) - 1
        by_stage = [balance.of_stage(split, stages, stage) for stage in range(stages)]
        assert sum(sum(counts(mine)) for mine in by_stage) == layers


@given(st.integers(3, 9), st.integers(1, 4), heads, heads)
def test_no_split_has_a_cheaper_worst_chunk_than_by_cost(layers, pieces, head, embedding):
    def worst(held):
        costs = [float(count) for count in held]
        costs[0] += embedding
        costs[-1] += head
        return max(costs)

    cuts = combinations_with_replacement(range(layers + 1), pieces - 1)
    every = [[b - a for a, b in zip((0, *cut), (*cut, layers), strict=True)] for cut in cuts]
    best = counts(balance.by_cost(layers, pieces, head=head, embedding=embedding))
    assert worst(best) == pytest.approx(min(map(worst, every)), rel=1e-12)


@given(st.integers(1, 12), st.integers(1, 6), st.integers(1, 3))
def test_without_embedding_and_head_costs_a_dividing_split_is_even(each, stages, chunks):
    layers = each * stages * chunks
    even = balance.even(layers, stages, chunks)
    assert balance.by_cost(layers, stages, chunks) == even
    assert balance.explicit([each] * stages * chunks, layers, stages, chunks) == even
    assert counts(even) == [each] * stages * chunks


@given(heads, heads)
def test_a_dearer_head_never_gets_more_layers(cheap, more):
    held = [counts(balance.by_cost(32, 4, head=cost))[-1] for cost in (cheap, cheap + more)]
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
        assert counts(balance.split(*arguments, **options)) == [7, 8, 8, 7]
        return
    with pytest.raises(InputError, match=complaint):
        balance.split(*arguments, **options)
