"""Packages of kernels that are not installed have the kernels of torch."""

import sys
from typing import Any

import pytest
import torch

from sim.config.errors import InputError
from sim.jobs.capturing.capture import capture
from sim.jobs.recorded.kernels import kernel_of
from sim.jobs.recorded.recording import Recording
from sim.model.kernels import Attention


def attended(packed: bool, **options: Any) -> Recording:
    def train() -> None:
        from flash_attn import flash_attn_func, flash_attn_varlen_func  # type: ignore[import-not-found]

        layer = torch.nn.Linear(64, 64, device="cuda", dtype=torch.bfloat16)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        for _ in range(3):
            x = layer(torch.ones(2, 128, 64, device="cuda", dtype=torch.bfloat16))
            heads = x.unflatten(-1, (4, 16))
            if packed:
                rows, ends = heads.flatten(0, 1), torch.tensor([0, 128, 256], device="cuda")
                y = flash_attn_varlen_func(rows, rows, rows, ends, ends, 128, 128, **options)
            else:
                y = flash_attn_func(heads, heads, heads, **options)
            y.float().mean().backward()
            optimizer.step()

    return capture(train, world=1)[0]


@pytest.mark.parametrize("packed", [False, True])
def test_flash_attn_is_fused_attention(packed: bool) -> None:
    own = attended(packed, causal=True)
    kernels = [kernel_of(own.operators[e.operator]) for e in own.events if e.kind == "kernel"]
    forward, backward = (kernel for kernel in kernels if isinstance(kernel, Attention))
    assert (forward.batch, forward.heads, forward.q, forward.head) == (2, 4, 128, 16)
    assert (forward.causal, backward.backward) == (True, True)
    assert "flash_attn is not installed" in " ".join(own.notes)
    assert "flash_attn" not in sys.modules


def test_a_window_has_no_cost_and_is_refused() -> None:
    with pytest.raises(InputError, match="a window of"):
        attended(packed=False, window_size=(16, 0))
