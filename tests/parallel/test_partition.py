"""Unlike layers cut so that the costliest piece is cheapest: against all ways of cutting them."""

from itertools import combinations_with_replacement, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.hardware import stack as stacks
from sim.model.reading import load
from sim.parallel.layer_split import by_cost
from sim.parallel.partition import partition
from sim.parallel.uneven_layers import balanced

costs = st.lists(st.integers(1, 9), min_size=2, max_size=8)


def worst(counts, layers, first, last) -> float:
    ends = [0]
    for count in counts:
        ends.append(ends[-1] + count)
    sums = [sum(layers[a:b]) for a, b in pairwise(ends)]
    sums[0] += first
    sums[-1] += last
    return max(sums)


@given(costs, st.integers(2, 5), st.integers(0, 12), st.integers(0, 12))
def test_no_other_way_has_a_cheaper_costliest_piece(layers, pieces, first, last):
    pieces = min(pieces, len(layers) + 2)
    ways = (
        [b - a for a, b in pairwise((0, *ends, len(layers)))]
        for ends in combinations_with_replacement(range(len(layers) + 1), pieces - 1)
    )
    sound = [way for way in ways if 0 not in way[1:-1]]
    own = partition(tuple(layers), pieces, first=first, last=last)
    assert sum(own) == len(layers)
    assert 0 not in own[1:-1]
    best = min(worst(way, layers, first, last) for way in sound)
    assert worst(own, layers, first, last) == best


@given(st.integers(2, 20), st.integers(2, 6), st.integers(0, 4), st.integers(0, 4))
def test_equal_layers_are_cut_as_well_without_their_costs(layers, pieces, first, last):
    pieces = min(pieces, layers)
    own = partition((1.0,) * layers, pieces, first=first, last=last)
    known = by_cost(layers, pieces, head=last, embedding=first)
    ones = [1] * layers
    assert worst(own, ones, first, last) == worst(known, ones, first, last)


def test_light_layers_share_a_stage():
    """PipeDream's point: a stage has as many layers as it has time for."""
    assert partition((1, 1, 1, 1, 4, 4), 3) == (4, 1, 1)


def test_too_few_layers_are_refused():
    with pytest.raises(ValueError, match="1 layers are too few for 4 pieces"):
        partition((1.0,), 4)


def test_dense_layers_in_front_of_experts_are_counted_as_what_they_cost():
    """DeepSeek-V2-Lite: the dense layer costs less than the others, the head more."""
    model = load("deepseek-v2-lite")
    assert len(set(model.kinds)) > 1
    split = balanced(model, stacks.load("megatron-core"), 4, 1)
    assert sum(split) == model.layers
    assert split[-1] < split[0]
