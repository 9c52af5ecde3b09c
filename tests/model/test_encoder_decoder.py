"""An encoder and a decoder that looks at it: FLOPs, memory, parameters, and what is refused."""

from dataclasses import replace
from typing import Any

import pytest

from sim.config.errors import InputError
from sim.config.schema import validate
from sim.model.block import block
from sim.model.counts import full_flops, model_flops, parameters, whole
from sim.model.execution import Execution, Sharding
from sim.model.fusion import Fusion
from sim.model.kernels import Gemm
from sim.model.operators import kernels_of
from sim.model.reading import load
from sim.model.transformer import Transformer

T5 = Transformer(
    layers=5, pattern="3 dense, 2 decoder", hidden=64, heads=8, head=16, ffn=256, vocab=1000,
    seq=48, decoder_seq=12, tied_embeddings=True, positions="relative", normalisation="rmsnorm",
    bias=False, dropout=False, causal=False,
)  # fmt: skip
B = 3


def run(model: Transformer = T5, **sharding: Any) -> Execution:
    return replace(whole(model, B), sharding=Sharding(**sharding))


def of(kind: str, model: Transformer = T5, **sharding: Any) -> dict[str, Any]:
    from sim.model.kinds import specialised

    module, execution = specialised(kind, run(model, **sharding))
    return {each.name: each for each in module.operators(execution)}


def test_the_row_has_the_decoder_behind_the_encoder() -> None:
    assert T5.row == ("embedding", *["dense"] * 3, "decoder_input", *["decoder"] * 2, "head")


def test_flops_are_those_of_both_sequences() -> None:
    """Products 2 m n k: of the encoder's tokens (e) and the decoder's (d), each layer's own."""
    e, d, h, f = B * T5.seq, B * T5.decoder_seq, T5.hidden, T5.ffn
    inner, heads = T5.heads * T5.head, B * T5.heads * T5.head
    encoder = 2 * e * (4 * h * inner + 2 * h * f) + 4 * heads * T5.seq**2
    own = 2 * d * (4 * h * inner + 2 * h * f) + 4 * heads * T5.decoder_seq**2
    across = 2 * (2 * d + 2 * e) * h * inner + 4 * heads * T5.decoder_seq * T5.seq
    layers = 3 * encoder + 2 * (own + across)
    assert model_flops(T5, B) == 3 * (layers + 2 * d * h * T5.vocab)
    assert full_flops(block("decoder", run()).forward) == own + across


def test_backward_has_twice_the_products_of_forward() -> None:
    decoder = block("decoder", run())
    ahead, back = (
        sum(one.flops for one in kernels_of(items) if isinstance(one, Gemm))
        for items in (decoder.forward, decoder.backward)
    )
    assert back == 2 * ahead


def test_the_memory_is_kept_once_and_its_keys_by_each_layer() -> None:
    """Half precision: a layer keeps K and V of the encoder's tokens, Q, the probabilities (read by
    the product behind) and what its norms and products read of the decoder's."""
    e, d, inner = B * T5.seq, B * T5.decoder_seq, T5.heads * T5.head
    cross = of("decoder")
    scores = B * T5.heads * T5.seq * T5.decoder_seq
    assert cross["cross core"].saved == 2 * (2 * e * inner + d * inner + scores)
    assert cross["cross kv"].saved_for_weights == 0.0
    assert of("decoder_input")["memory"].saved == 2 * e * T5.hidden
    longer = replace(T5, seq=2 * T5.seq)
    grown = block("decoder", run(longer)).saved - block("decoder", run()).saved
    assert grown == 2 * (2 * e * inner + scores)


def test_parameters_are_three_attentions_worth() -> None:
    inner, h = T5.heads * T5.head, T5.hidden
    assert block("decoder", run()).count == 8 * h * inner + 2 * h * T5.ffn + 3 * h
    biases = 32 * T5.heads
    assert block("decoder_input", run()).count == h + biases  # the last norm of the encoder
    untied = replace(T5, tied_embeddings=False)
    assert parameters(untied) - parameters(T5) == T5.vocab * h
    assert parameters(load("t5-11b")) == 11_307_321_344  # transformers on the meta device


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_tensor_parallelism_divides_a_layer_of_the_decoder(sequence_parallel: bool) -> None:
    whole_one = block("decoder", run())
    half = block("decoder", run(tp=2, sequence_parallel=sequence_parallel))
    norms = 3 * T5.hidden
    assert half.count - norms == (whole_one.count - norms) / 2
    assert of("embedding", tp=2)["position bias"].parameters == 32 * T5.heads / 2
    if sequence_parallel:
        assert half.saved == whole_one.saved / 2


def test_flash_attention_keeps_no_scores_across() -> None:
    flash = replace(T5, positions="rotary", attention="flash")
    e, d, inner = B * T5.seq, B * T5.decoder_seq, T5.heads * T5.head
    core = of("decoder", flash)["cross core"]
    assert core.saved == 2 * (2 * e * inner + d * inner) + 4 * d * T5.heads
    assert full_flops(core.forward) == 4 * B * inner * T5.seq * T5.decoder_seq


def test_a_recipe_has_each_layer_cast_the_memory() -> None:
    from sim.model import precision

    low = replace(run(), recipe=precision.load("blockwise"))
    kept = next(one for one in _operators(low) if one.name == "cross kv").saved_for_weights
    assert kept == B * T5.seq * T5.hidden * low.kept_width


def _operators(execution: Execution) -> Any:
    from sim.model.kinds import specialised

    module, own = specialised("decoder", execution)
    return module.operators(own)


def test_relative_positions_read_scores_once_more_and_write_them() -> None:
    plain = replace(T5, positions="none")
    more = sum(
        getattr(kernel, "bytes", 0.0) * sign
        for model, sign in ((T5, 1), (plain, -1))
        for kernel in kernels_of(block("dense", run(model)).forward)
    )
    assert more == 3 * 2 * B * T5.heads * T5.seq**2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"decoder_seq": 0}, "give layers of kind decoder the tokens"),
        ({"pattern": "dense"}, "give layers of kind decoder the tokens"),
        ({"decoder_seq": -1}, "must not be negative"),
        ({"attention": "flash"}, "which stores them"),
        ({"position_buckets": 0}, "must be positive"),
        ({"causal": True}, "causal is not modelled in a model with a decoder"),
        ({"window": 8, "causal": True}, "window is not modelled in a model with a decoder"),
        ({"mtp": 1}, "mtp is not modelled in a model with a decoder"),
        ({"post_norm": True}, "post_norm is not modelled in a model with a decoder"),
        ({"layers": 1}, "end before the first decoder"),
        ({"pattern": "3 dense, 1 decoder, 1 dense"}, "other layers after its first decoder"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], words: str) -> None:
    given = ((name, getattr(T5, name)) for name in T5.__dataclass_fields__)
    keys = {name: value for name, value in given if value is not None}
    with pytest.raises(InputError, match=words):
        validate({**keys, **changes}, Transformer, "models/t5.toml")


def test_context_parallelism_is_refused() -> None:
    flash = replace(T5, positions="rotary", attention="flash")
    with pytest.raises(
        InputError, match="attention to an encoder that ranks divide is not modelled"
    ):
        block("decoder", run(flash, cp=2))


def test_a_fused_stack_runs_the_same_products() -> None:
    fused = replace(run(), fusion=Fusion(compiled=True))
    assert full_flops(block("decoder", fused).forward) == full_flops(
        block("decoder", run()).forward
    )


def test_tokens_are_those_of_both_sequences() -> None:
    import sim

    result = sim.run("t5-11b")
    assert result.tokens_per_second == pytest.approx(result.samples_per_second * (512 + 128))
    assert result.inputs.tokens == 512 + 128
