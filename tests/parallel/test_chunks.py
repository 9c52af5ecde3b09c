"""Chunks: the model's row cut into pieces, each held by one stage."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.hardware import device as devices
from sim.hardware import stack as stacks
from sim.hardware.stack import Stack
from sim.model.transformer import Transformer
from sim.parallel.chunks import chunks_of
from sim.parallel.layer_split import Balance
from sim.parallel.plan import Plan
from sim.parallel.schedule import table
from sim.parallel.uneven_layers import balanced

A100 = devices.load("a100-80gb-sxm")
EVEN = stacks.load("megatron-lm-2021")


def model(layers: int, **changes: object) -> Transformer:
    usual = dict(
        tied_embeddings=True, layers=layers, hidden=64, heads=4, ffn=256, vocab=1000, seq=32
    )
    return Transformer(**(usual | changes))  # type: ignore[arg-type]


def held(count: int, stack: Stack = EVEN, **plan: object) -> list[list[int]]:
    """Layers of the chunks of each stage."""
    settings = Plan(**{"global_batch": 64, **plan})  # type: ignore[arg-type]
    return [
        [chunk.layers for chunk in own] for own in chunks_of(model(count), stack, settings, A100)
    ]


@given(
    st.sampled_from(sorted(table())),
    st.integers(2, 4),
    st.integers(2, 3),
    st.integers(1, 3),
)
def test_the_pieces_of_all_stages_are_the_model_in_order(name, pp, interleave, each):
    chunks = table()[name].chunks or interleave
    pp *= table()[name].stages
    plan = Plan(global_batch=8 * pp, pp=pp, schedule=name, interleave=chunks)
    whole = model(each * plan.cuts)
    by_piece = {
        piece: chunk.kinds
        for places, own in zip(plan.pieces, chunks_of(whole, EVEN, plan, A100), strict=True)
        for piece, chunk in zip(places, own, strict=True)
    }
    joined = [kind for piece in range(plan.cuts) for kind in by_piece[piece]]
    assert tuple(joined) == whole.row


def test_one_stage_holds_the_model_in_one_chunk() -> None:
    (own,) = chunks_of(model(5), EVEN, Plan(global_batch=8), A100)
    assert [chunk.kinds for chunk in own] == [model(5).row]


def test_interleaved_chunks_of_a_stage_are_stages_apart_and_those_of_a_v_come_back() -> None:
    layers = {"layers": (1, 2, 3, 4), "pp": 2, "interleave": 2}
    assert held(10, **layers) == [[1, 3], [2, 4]]
    assert held(10, schedule="zb-v", **layers) == [[1, 4], [2, 3]]


def test_layers_are_split_evenly_else_with_short_ends_else_by_cost() -> None:
    assert held(8, pp=4) == [[2]] * 4
    assert held(14, pp=4) == [[3], [4], [4], [3]]
    costly = replace(EVEN, balance="cost")
    assert held(9, pp=4) == held(9, costly, pp=4)


@pytest.mark.parametrize("balance", ["cost", "quota"])
def test_a_large_vocabulary_takes_layers_from_the_last_stage(balance: Balance) -> None:
    stack = replace(EVEN, balance=balance)
    plan = Plan(global_batch=8, pp=4)
    small, large = (
        [chunk.layers for (chunk,) in chunks_of(model(32, vocab=vocab), stack, plan, A100)]
        for vocab in (64, 2000)
    )
    assert sum(small) == sum(large) == 32
    assert large[-1] < small[-1]


def test_what_is_balanced_counts_the_head_in_layers() -> None:
    # A head of 64 x 3072 weighs as much as four layers of 12 x 64 x 64: a product of each token.
    wide = model(28, vocab=4 * 12 * 64, attention="flash", seq=1)
    assert balanced(wide, EVEN, 4, 1) == (8, 8, 8, 4)
