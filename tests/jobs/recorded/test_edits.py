"""Edits of recordings that leave something out."""

from dataclasses import replace
from typing import cast

import sim
from sim import kind, questions
from sim.jobs.recorded.recording import Allocation, Operator
from sim.jobs.recorded.setup import Recorded
from tests.jobs.recorded.test_play import LAUNCH, PRODUCT, REDUCE, WORLD, half, recorded


def test_what_ddp_sums_is_as_wide_as_what_fills_its_bucket() -> None:
    """Outputs may be left out of a recording: inputs say it then."""
    narrow = Operator(name="aten.copy_", inputs=(half(4096, 4096),) * 2, written=2 * 4096**2)
    wide = replace(narrow, inputs=(replace(half(4096, 4096), dtype="float32", width=4),) * 2)
    for fills, advised in ((narrow, False), (wide, True)):
        back = replace(LAUNCH, operator=1, phase="backward")
        first, second = replace(REDUCE, mark=7), replace(REDUCE, mark=8)
        own = recorded(back, first, back, second, replace(LAUNCH, reads=(7, 8)),
                       operators=(PRODUCT, fills))  # fmt: skip
        scenario = sim.RecordedScenario(record=(own,), topology="dgx-h100-ndr")
        advice = questions.advice(cast(Recorded, kind.set_up(scenario)))
        assert any("bf16_compress_hook" in edit.change for edit in advice) == advised


def test_only_weights_that_are_sharded_are_gathered_again() -> None:
    """A backward pass of DDP may gather losses or features of all ranks."""
    numbers = 1 << 28
    for held, advised in ((numbers * 4, False), (numbers * 4 // WORLD, True)):
        gather = replace(REDUCE, name="all_gather", bytes=2.0 * numbers)
        back = replace(LAUNCH, phase="backward", reads=(7,))
        own = recorded(LAUNCH, gather, back, replace(REDUCE, mark=8), replace(LAUNCH, reads=(8,)),
                       parameters=numbers, memory=(Allocation(-1, 1, held, 0, 0, 0),))  # fmt: skip
        scenario = sim.RecordedScenario(record=(own,), topology="dgx-h100-ndr")
        advice = questions.advice(cast(Recorded, kind.set_up(scenario)))
        assert any("reshard_after_forward" in edit.change for edit in advice) == advised
