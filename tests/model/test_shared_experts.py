"""Shared experts beside tokens that are under way to the others."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from sim import kind
from sim.model import counts
from sim.model.block import Block, block
from sim.model.kernels import Item, Overlap
from sim.model.operators import kernels_of
from sim.model.transformer import Transformer
from sim.results.result import Result
from sim.scenario.setup import from_scenario
from sim.simulate import answer as simulated
from tests.model.test_block import run

MODEL = Transformer(
    tied_embeddings=True,
    name="mixture", layers=2, hidden=256, heads=4, ffn=512, vocab=1000, seq=128, gated_mlp=True,
    bias=False, dropout=False, attention="flash", positions="rotary", normalisation="rmsnorm",
    pattern="experts",
    blocks={"experts": {"experts": 8, "top_k": 2, "ffn": 512, "shared": 1}},
)  # fmt: skip
PASSES = ("forward", "backward", "input_gradient", "weight_gradient")


def layer(*, overlaps: bool, **sharding: Any) -> Block:
    own = replace(counts.whole(MODEL, 1).sharding, ep=4, experts=("dp",), **sharding)
    return block("experts", run(MODEL, sharding=own, overlaps_shared=overlaps))


def hidden(items: tuple[Item, ...]) -> list[list[str]]:
    """For each overlap its call and the products beside it."""
    return [
        [item.collective.name, *(k.name for k in item.kernels if k.family == "gemm")]
        for item in items
        if isinstance(item, Overlap) and item.collective.kind == "all_to_all"
    ]


def test_the_first_product_hides_dispatch_and_the_second_hides_combination() -> None:
    own = layer(overlaps=True)
    assert hidden(own.forward) == [
        ["dispatch of tokens", "shared expert in"], ["combine of tokens", "shared expert out"]
    ]  # fmt: skip
    assert hidden(own.backward) == [
        ["combine grad of tokens", "shared expert out dgrad", "shared expert out wgrad"],
        ["dispatch grad of tokens", "shared expert in dgrad", "shared expert in wgrad"],
    ]
    assert [len(row) for row in hidden(own.input_gradient)] == [2, 2]
    assert hidden(own.weight_gradient) == []


@pytest.mark.parametrize("sharding", [{}, {"tp": 2, "sequence_parallel": True}], ids=str)
@pytest.mark.parametrize("name", PASSES)
def test_nothing_is_run_more_or_less_often(name: str, sharding: dict[str, Any]) -> None:
    def parts(overlaps: bool) -> tuple[Counter[str], Counter[str]]:
        items = getattr(layer(overlaps=overlaps, **sharding), name)
        calls = [getattr(item, "collective", item) for item in items]
        sent = Counter(call.name for call in calls if hasattr(call, "axes"))
        return Counter(kernel.name for kernel in kernels_of(items)), sent

    assert parts(True) == parts(False)


def test_what_is_kept_does_not_change() -> None:
    one, other = layer(overlaps=True), layer(overlaps=False)
    assert (one.saved, one.held, one.transient) == (other.saved, other.held, other.transient)


def step(ffn: int, **changes: Any) -> Result:
    small = {
        "gpus": 64, "model.layers": 4, "plan.pp": 1, "plan.interleave": 1, "plan.schedule": "1f1b",
        "plan.ep": 8, "plan.global_batch": 64, "topology": "dgx-h100-ndr",
        "node.bandwidth": "100 GB/s", "stack.overlap_gradients": False,
        "model.blocks.experts.shared_ffn": ffn,
    }  # fmt: skip
    return simulated(from_scenario(kind.load("mixtral-8x7b", small | changes)))


@pytest.mark.parametrize("interference", [0.0, 0.4, 0.9])
@pytest.mark.parametrize("ffn", [64, 14336])
def test_it_is_no_slower_than_in_turn_and_no_faster_than_either_alone(
    interference: float, ffn: int
) -> None:
    given = {"device.interference": interference}
    turns, beside = step(ffn, **given), step(ffn, **given, **{"plan.overlap_shared": True})
    hidden = turns.step_time - beside.step_time
    sent = turns.breakdown["expert communication"]
    shared = turns.breakdown["compute"] - step(0, **given).breakdown["compute"]
    assert 0.0 <= hidden <= min(sent, shared) * (1 + 1e-9)
    if interference == 0.0:
        assert hidden > 0.5 * min(sent, shared)


def test_it_is_played_alike_folded_and_unfolded() -> None:
    small = {"gpus": 16, "model.layers": 2, "plan.pp": 1, "plan.interleave": 1,
             "plan.schedule": "1f1b", "plan.ep": 8, "plan.global_batch": 32,
             "topology": "dgx-h100-ndr", "plan.overlap_shared": True,
             "model.blocks.experts.shared": 1}  # fmt: skip
    job = from_scenario(kind.load("mixtral-8x7b", small))
    assert simulated(job).step_time == pytest.approx(simulated(job, unfold=True).step_time)
