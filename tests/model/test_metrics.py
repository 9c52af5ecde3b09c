"""What loss and metrics of a training script move, counted by the operations of their source."""

from dataclasses import replace

import pytest

from sim.config.errors import InputError
from sim.hardware import stack
from sim.model.block import block
from sim.model.execution import Execution, Sharding
from sim.model.fusion import Fusion
from sim.model.operators import kernels_of
from sim.model.reading import load

MODEL = load("llama3-8b")
LOGITS = MODEL.seq * MODEL.vocab
TORCH = Fusion(vocab_parallel=False, norm=True)


def moved(fusion: Fusion, name: str) -> float:
    """Bytes a logit that the head's kernels of a name move."""
    run = Execution(model=MODEL, microbatch=1, sharding=Sharding(), precision="bf16", fusion=fusion)
    head = block("head", run)
    kernels = (*kernels_of(head.forward), *kernels_of(head.backward))
    return sum(kernel.bytes for kernel in kernels if kernel.name == name) / LOGITS


def test_torch_s_loss_reads_long_rows_three_times_and_their_gradients_as_often() -> None:
    assert moved(TORCH, "cross-entropy") == (2 + 4) + (3 * 4 + 4)
    assert moved(TORCH, "cross-entropy grad") == 4 + (3 * 4 + 4) + (4 + 2)
    halves = replace(TORCH, logits_fp32=False)
    assert moved(halves, "cross-entropy") == 3 * 2 + 2
    assert moved(halves, "cross-entropy grad") == 2 + (3 * 2 + 2)


def test_each_of_composer_s_metrics_casts_the_logits_and_takes_torch_s_loss_again() -> None:
    one = replace(TORCH, logits_fp32=False, metrics=("cross-entropy",))
    assert moved(one, "metrics") == moved(TORCH, "cross-entropy")
    two = replace(one, metrics=("cross-entropy", "cross-entropy"))
    assert moved(two, "metrics") == 2 * moved(one, "metrics")


def test_a_stack_without_metrics_spends_nothing_on_them() -> None:
    assert moved(TORCH, "metrics") == 0.0


def test_an_unknown_metric_is_refused(tmp_path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('like = "llm-foundry-fsdp"\n[fusion]\nmetrics = ["perplexity"]\n')
    with pytest.raises(InputError, match="metrics"):
        stack.load(str(path))


def test_shifted_logits_are_copied_and_their_gradients_put_into_zeros() -> None:
    plain = replace(TORCH, logits_fp32=False)
    shifted = replace(plain, shifted_logits=True)
    assert moved(shifted, "cross-entropy") - moved(plain, "cross-entropy") == 2 * 2
    assert moved(shifted, "cross-entropy grad") - moved(plain, "cross-entropy grad") == 3 * 2


def test_a_cast_in_front_of_a_fused_loss_moves_the_logits_and_their_gradient_once_more() -> None:
    fused = replace(TORCH, cross_entropy=True)
    cast = replace(fused, logits_cast=True)
    assert moved(cast, "cross-entropy") == 2 * moved(fused, "cross-entropy") + (2 + 4)
    assert moved(cast, "cross-entropy grad") == 2 * moved(fused, "cross-entropy grad") + (4 + 2)
