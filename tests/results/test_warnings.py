"""What a reader is told before believing a number."""

import sim


def test_chunks_of_unequal_layers_are_told() -> None:
    (said,) = (
        warning
        for warning in sim.run("gpt3-175b-megatron", {"plan.interleave": 5}).warnings
        if "chunks" in warning
    )
    assert said.startswith("40 chunks of 2 to 3 layers")
    even = sim.run("gpt3-175b-megatron", {"plan.interleave": 4}).warnings
    assert not [warning for warning in even if "chunks" in warning]
