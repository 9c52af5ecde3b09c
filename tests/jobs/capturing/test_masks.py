"""Transformers leaves out an attention mask of ones, in a capture as on a GPU."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from sim.jobs.capturing.capture import capture
from sim.jobs.recorded.recording import Recording

transformers = pytest.importorskip("transformers")

BATCH, LENGTH = 2, 128


def recorded(mask: Callable[[], Any]) -> Recording:
    """A step of a small Llama, whose batches have a mask."""
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4}
    layers = {"num_hidden_layers": 1, "num_key_value_heads": 2, "vocab_size": 100}

    def train() -> None:
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **layers)).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            tokens = torch.randint(100, (BATCH, LENGTH)).cuda()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                found = model(input_ids=tokens, attention_mask=mask(), labels=tokens)
            found.loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    return capture(train, world=1)[0]


def said(own: Recording) -> list[str]:
    """The notes on masks."""
    return [note for note in own.notes if "mask" in note]


def attention(own: Recording) -> list[tuple[str, bool]]:
    """The kernels of attention, with whether they are causal."""
    found = [each for each in own.operators if "scaled_dot_product" in each.name]
    return [(each.name, bool(each.flags.get("is_causal"))) for each in found]


def test_a_mask_of_ones_is_left_out() -> None:
    own = recorded(lambda: torch.ones(BATCH, LENGTH, dtype=torch.long).cuda())
    assert said(own) == []
    assert attention(own) == [
        (f"aten._scaled_dot_product_flash_attention{end}", True) for end in ("", "_backward")
    ]


def test_a_mask_of_padded_sequences_stays() -> None:
    def padded() -> Any:
        mask = torch.ones(BATCH, LENGTH, dtype=torch.long)
        mask[0, -1] = 0
        return mask.cuda()

    own = recorded(padded)
    assert said(own) == []
    assert {kind for kind, _ in attention(own)} == {
        f"aten._scaled_dot_product_efficient_attention{end}" for end in ("", "_backward")
    }


def test_a_note_says_that_an_unknown_mask_stays() -> None:
    own = recorded(lambda: torch.rand(BATCH, LENGTH, device="cuda") > 0.5)
    assert all("efficient" in kind for kind, _ in attention(own))
    (note,) = said(own)
    assert "the attention mask stays" in note
    assert "leave attention_mask out of the batch" in note
