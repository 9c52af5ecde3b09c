"""Model state: bytes a parameter, as published."""

import pytest

from sim.parallel.state import state


@pytest.mark.parametrize(
    ("options", "total"),
    [
        # Megatron-LM's fp16: weights, gradients, fp32 weights, two moments.
        ({"precision": "fp16", "gradients": "buffer"}, 2 + 2 + 12),
        # Its bf16 accumulates in fp32 (Korthikanti et al. 2022; Megatron-LM's theoretical memory).
        ({"precision": "bf16", "gradients": "fused"}, 2 + 4 + 12),
        # ZeRO-1 of the same over four: 6 + 12 / dp.
        ({"precision": "bf16", "gradients": "fused-buffer"}, 2 + 2 + 12),
        ({"precision": "bf16", "gradients": "fused", "zero": 1}, 6 + 3),
        ({"precision": "bf16", "gradients": "fused", "zero": 2}, 2 + 1 + 3),
        ({"precision": "bf16", "gradients": "fused", "zero": 3}, 18 / 4),
        ({"precision": "fp32", "gradients": "grad"}, 16),
        ({"precision": "fp32", "gradients": "grad", "moments": 4.0}, 12),
    ],
)
def test_bytes_a_parameter_add_up_as_published(options, total) -> None:
    assert sum(state(shards=4, replicas=4, **options).parts(1.0).values()) == total


def test_states_are_sharded_over_fewer_ranks_than_gradients_are_summed_over() -> None:
    hybrid = state(precision="bf16", zero=3, shards=4, replicas=8)
    assert sum(hybrid.parts(1.0).values()) == 18 / 4


def test_ddp_keeps_the_gradients_of_its_buckets() -> None:
    assert state(precision="fp32", gradients="fresh").growing
    assert not state(precision="fp32", gradients="fresh", replicas=2).growing
    assert state(precision="fp32", gradients="fresh", replicas=2).beside == 4
    sharded = state(precision="fp32", gradients="fresh", zero=2, shards=2, replicas=2)
    assert (sharded.growing, sharded.beside) == (True, 0)
