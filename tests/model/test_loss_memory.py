"""What the loss holds at once, and which parts of a model torch.compile sees."""

from dataclasses import replace

import pytest

from sim.model.block import block
from sim.model.execution import Execution, Sharding
from sim.model.fusion import Fusion
from sim.model.reading import load

TORCH = Fusion(vocab_parallel=False, norm=True)


def head(fusion: Fusion) -> float:
    """Bytes a logit that a head keeps and holds while it runs backward, the largest moment."""
    model = load("llama3-8b")
    run = Execution(model=model, microbatch=1, sharding=Sharding(), precision="bf16", fusion=fusion)
    own = block("head", run)
    inputs = 2 * 2 * model.seq * model.hidden  # of the norm and of the output layer
    return (own.saved - inputs + own.transient) / (model.seq * model.vocab)


def test_the_loss_of_torch_holds_three_fp32_copies_of_the_logits_backward() -> None:
    """Log-probabilities, the gradient of them, the gradient of the logits (aten's
    _log_softmax_backward_data does not work in place)."""
    assert head(TORCH) == 4 + 4 + 4


def test_a_compiled_loss_keeps_the_logits_and_makes_their_gradient_of_them() -> None:
    """Most is there behind the loss: of the output layer dy, dx and dW beside the logits."""
    model = load("llama3-8b")
    product = 2 * (1 + model.hidden / model.vocab + model.hidden / model.seq)
    assert head(replace(TORCH, compiled=True)) == pytest.approx(2 + product)


def test_a_head_that_is_not_compiled_is_that_of_eager_torch_and_layers_stay_compiled() -> None:
    layers_only = replace(TORCH, compiled=True, compiled_ends=False)
    assert head(layers_only) == head(TORCH)
    run = Execution(
        model=load("llama3-8b"),
        microbatch=1,
        sharding=Sharding(),
        precision="bf16",
        fusion=layers_only,
    )
    whole = replace(run, fusion=replace(layers_only, compiled_ends=True))
    assert block("dense", run).forward == block("dense", whole).forward
