"""Multi-token prediction: blocks behind the layers that share embedding and output layer."""

from dataclasses import replace
from pathlib import Path

import pytest

import sim
from sim.config.errors import InputError
from sim.model import counts
from sim.model.block import Block, block
from sim.model.execution import DENSE, Sharding, Words
from sim.model.kinds import check_layers
from sim.model.transformer import Transformer
from sim.program.causes import EMBEDDING
from sim.scenario.setup import from_scenario
from tests.adding.walk import played, usual

PLAIN = Transformer(
    layers=4, hidden=64, heads=4, ffn=256, vocab=1000, seq=32, attention="flash", bias=False,
    dropout=False, positions="rotary", normalisation="rmsnorm", tied_embeddings=False,
)  # fmt: skip
TWICE = replace(PLAIN, mtp=2)


def test_each_module_has_a_projection_three_norms_and_a_layer_of_its_own() -> None:
    layer = block("dense", counts.whole(PLAIN, 1)).count
    module = 2 * 64 * 64 + 3 * 64 + layer
    assert counts.parameters(TWICE) - counts.parameters(PLAIN) == 2 * module
    check_layers(TWICE)


def test_each_module_multiplies_by_the_output_layer_again() -> None:
    layer = counts.full_flops(block("dense", counts.whole(PLAIN, 1)).forward)
    module = layer + 2 * 32 * (2 * 64 * 64 + 64 * 1000)
    assert counts.model_flops(TWICE, 1) - counts.model_flops(PLAIN, 1) == 3 * 2 * module


def on_ranks(kind: str, sharding: Sharding, words: Words = "again") -> Block:
    return block(kind, replace(counts.whole(TWICE, 1), sharding=sharding, words=words))


def test_only_a_stage_without_the_embedding_holds_a_copy_of_it() -> None:
    words = 1000 * 64
    own, *copies = (
        on_ranks("mtp_input", Sharding(), used).count for used in ("again", "first", "alone")
    )
    assert copies == [own + words, own + words]
    assert block("head", counts.whole(TWICE, 1)).count == words + 64
    assert block("mtp_head", counts.whole(TWICE, 1)).count == 64


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(("schedule", "copies"), [("1f1b", 1), ("zb-v", 0)])
def test_modules_of_a_stage_share_one_copy(schedule: str, copies: int, tied: bool) -> None:
    changes = {
        "plan.pp": 2, "plan.tp": 1, "plan.schedule": schedule, "plan.interleave": 1, "gpus": 2,
        "plan.microbatch": 1, "plan.recompute": "none", "model.layers": 6, "model.mtp": 2,
        "model.tied_embeddings": tied,
    }  # fmt: skip
    own = from_scenario(sim.load("gpt3-175b-megatron", changes)).job
    held = sum(sum(own.parameters(chunks).values()) for chunks in own.chunks)
    shapes = (weight for chunks in own.chunks for weight in own.matrices(chunks)[DENSE])
    tables = sum(weight.number for weight in shapes if own.execution.vocab in weight[:2])
    assert held == counts.parameters(own.model) + copies * own.execution.vocab * own.model.hidden
    assert tables == (1 if tied else 2) + copies


@pytest.mark.parametrize("sp", [False, True])
def test_the_projection_is_divided_and_gathered(sp: bool) -> None:
    whole, part = (
        on_ranks("mtp_input", sharding)
        for sharding in (Sharding(), Sharding(tp=4, sequence_parallel=sp))
    )
    flops = [counts.full_flops(own.forward) for own in (whole, part)]
    assert flops[0] == 4 * flops[1]
    assert "mtp projection gather" in [item.name for item in part.forward]
    backward = [item.name for item in part.backward]
    assert ("mtp projection gather grad" in backward) == sp


def test_a_hidden_state_that_tp_does_not_divide_is_refused() -> None:
    odd = replace(TWICE, hidden=65, heads=4, head=16)
    with pytest.raises(InputError, match="tp = 2 does not divide hidden = 65"):
        block("mtp_input", replace(counts.whole(odd, 1), sharding=Sharding(tp=2)))


def test_modules_predict_what_follows_not_what_is_masked() -> None:
    with pytest.raises(ValueError, match="choose one"):
        replace(TWICE, predictions=4)


@pytest.mark.parametrize(
    "plan", [{}, {"plan.pp": 2}, {"plan.tp": 2, "plan.sequence_parallel": True}]
)
def test_a_model_with_modules_is_played_drawn_and_remembered(
    plan: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    untied = {**plan, "model.layers": 4, "model.tied_embeddings": False}
    without, more = usual(untied), played({**untied, "model.mtp": 1})
    assert more.step_time > without.step_time
    stages = more.stages
    assert [stage["layers"] for stage in stages] == ([5] if len(stages) == 1 else [2, 3])
    # The last stage's copy of the embedding is summed with the first's.
    summed = [result.breakdown.get(EMBEDDING, 0.0) > 0.0 for result in (without, more)]
    assert summed == [False, len(stages) == 2]
