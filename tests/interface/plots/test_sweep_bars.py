"""Sweeps of names have bars, those of numbers lines."""

import sim


def test_names_are_bars_and_numbers_a_line() -> None:
    named = sim.sweep("megatron-1.7b", {"plan.recompute": ["none", "selective", "full"]}, jobs=1)
    axes = named.plot().axes[0]
    assert len(axes.patches) == 3
    assert not axes.lines
    numbers = sim.sweep("megatron-1.7b", {"plan.microbatch": [2, 4]}, jobs=1)
    axes = numbers.plot().axes[0]
    assert not axes.patches
    assert len(axes.lines) == 1
