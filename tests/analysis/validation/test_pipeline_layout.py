"""Megatron's pipeline layouts as counts of layers."""

import pytest

from sim.analysis.validation.table import layers_of


@pytest.mark.parametrize(
    ("layout", "layers"),
    [
        ("Et*4|(t*4|)*14tmL", (*[4] * 15, 1)),
        ("Ettt|tt|ttL", (3, 2, 2)),
        ("Et*3|(t*2|t|)*2tL", (3, 2, 1, 2, 1, 1)),
        ("E|t|L", (0, 1, 0)),
    ],
)
def test_repetitions_are_written_out(layout: str, layers: tuple[int, ...]) -> None:
    assert layers_of(layout) == layers


@pytest.mark.parametrize("layout", ["", "t|tL", "Et|mLt", "Et*|L", "Et((t|)*2)*2L x", "Etx|L"])
def test_what_is_no_layout_is_refused(layout: str) -> None:
    with pytest.raises(ValueError, match="write it like"):
        layers_of(layout)
