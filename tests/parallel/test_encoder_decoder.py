"""An encoder and a decoder on the stages of a pipeline: what they hand over, keep and share."""

import pytest

import sim
from sim.config.errors import InputError
from sim.model.counts import parameters
from sim.parallel.job import Job
from sim.parallel.pipeline_p2p import sent_bytes
from sim.parallel.step import _tie_embeddings
from sim.scenario.setup import from_scenario

SIZES = {
    "gpus": 8, "plan.tp": 1, "plan.pp": 4, "plan.microbatch": 2, "plan.global_batch": 32,
    "model.layers": 8, "model.pattern": "4 dense, 4 decoder",
}  # fmt: skip
PLANS = (
    {},
    {"plan.pp": 2, "plan.layers": [3, 5]},
    {"plan.pp": 2, "plan.layers": [5, 3], "plan.recompute": "full"},
    {"plan.pp": 2, "plan.schedule": "interleaved", "plan.interleave": 2},
    {"plan.pp": 2, "plan.schedule": "zb-v"},
    {"plan.zero": 3},
    {"plan.tp": 2, "plan.pp": 2, "plan.sequence_parallel": True},
    {"model.tied_embeddings": False},
)


def scenario(**changes: object) -> sim.Scenario:
    return sim.load("t5-11b", SIZES | changes)


def job(**changes: object) -> Job:
    return from_scenario(scenario(**changes)).job


def test_stages_of_the_decoder_hand_on_the_encoders_result_too() -> None:
    own = job()
    token = own.plan.microbatch * own.model.hidden * 2
    encoder, decoder = own.model.seq * token, own.model.decoder_seq * token
    assert sent_bytes(own) == (encoder, encoder, encoder + decoder)
    assert sent_bytes(job(**{"plan.layers": [3, 3, 1, 1]})) == (
        encoder, encoder + decoder, encoder + decoder,
    )  # fmt: skip


def test_a_code_makes_both_of_them_smaller() -> None:
    whole, coded = sent_bytes(job()), sent_bytes(job(**{"plan.activations": {"kind": "int8"}}))
    assert isinstance(whole, tuple)
    assert isinstance(coded, tuple)
    assert coded == pytest.approx([size / 2 for size in whole], rel=1e-3)


def test_each_stage_of_the_decoder_keeps_the_encoders_result_once() -> None:
    own = job()
    rows, biases = own.plan.microbatch * own.model.seq, own.model.decoder_seq**2
    kept = own.block("decoder_stage").saved
    assert kept == 2 * rows * own.model.hidden + 2 * own.plan.microbatch * own.model.heads * biases


SOUND = {"kind": "sound", "channels": 80, "widths": [512], "taps": [3], "strides": [2]}


@pytest.mark.parametrize(
    ("changes", "holders"),
    [
        ({}, (0, 2, 3)),  # the encoder's words, the decoder's, the logits
        ({"model.tied_embeddings": False}, (0, 2)),
        ({"plan.layers": [4, 2, 1, 1]}, (0, 1, 3)),
        ({"plan.layers": [5, 1, 1, 1], "model.tied_embeddings": False}, (0,)),
        ({"model.blocks.embedding": SOUND}, (2, 3)),  # no words in front of the encoder
        ({"plan.pp": 2}, (0, 1)),  # the logits' stage has the decoder's words
        ({"plan.pp": 2, "plan.schedule": "zb-v"}, (0, 1)),  # the first one has the logits
    ],
)
def test_stages_that_look_words_up_hold_copies_whose_gradients_are_summed(changes, holders) -> None:
    own = job(**changes)
    assert own.embedding_holders == holders
    held = sum(sum(own.parameters(chunks).values()) for chunks in own.chunks)
    copies = (len(holders) - 1) * own.execution.vocab * own.model.hidden
    assert held == parameters(own.model) + copies


@pytest.mark.parametrize(("layers", "copies"), [([4, 2, 1, 1], 1), ([5, 1, 1, 1], 0)])
def test_encoder_and_decoder_share_learned_positions(layers: list[int], copies: int) -> None:
    changes = {"model.positions": "learned", "plan.layers": layers}
    own, rows = job(**changes), from_scenario(scenario(**changes)).job.model.seq
    held = sum(sum(own.parameters(chunks).values()) for chunks in own.chunks)
    words = (len(own.embedding_holders) - 1) * own.execution.vocab
    assert held == parameters(own.model) + (words + copies * rows) * own.model.hidden
    sums = {
        call.name: call.bytes for operation in _tie_embeddings(own, 0) for call in operation.calls
    }
    table = own.stack.reduced_bytes(own.plan.precision) * rows * own.model.hidden
    assert sums.get("position gradients", 0.0) == copies * table


@pytest.mark.parametrize("changes", PLANS)
def test_both_engines_agree_and_a_pipeline_computes_what_one_stage_does(changes) -> None:
    own = scenario(**changes)
    found = sim.run(own)
    for ways in ({"unfold": True}, {"engine": "clock"}):
        assert sim.run(own, **ways).step_time == pytest.approx(found.step_time, rel=1e-9)
    whole = sim.run(scenario(**{"plan.pp": 1, "plan.microbatch": 1}))
    flops = [each.mfu * each.step_time for each in (found, whole)]
    assert flops[0] == pytest.approx(flops[1], rel=1e-9)


def test_a_pipeline_of_encoder_and_decoder_that_does_not_drain_is_refused() -> None:
    with pytest.raises(InputError, match="a word embedding that stages share; take a schedule"):
        job(**{"plan.schedule": "pipedream-2bw", "plan.zero": 0})
