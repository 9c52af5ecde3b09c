"""Which changes of a script are advised."""

from dataclasses import replace
from typing import Any

import pytest

import sim
from sim import kind
from sim.analysis.explanation.advice import advised
from sim.results.by_line import Suggestion
from sim.results.result import Result


@pytest.mark.parametrize(
    ("before", "after", "helps"),
    [(0.5, 0.89, True), (0.5, 0.91, False), (0.95, 0.94, True), (0.95, 0.96, False)],
)
def test_a_change_that_takes_more_memory_leaves_a_tenth_of_it_free(
    before: float, after: float, helps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = sim.run("gpt2-one-gpu")

    def holding(share: float, step_time: float) -> Result:
        held = {**result.memory_per_gpu, "total": share * result.capacity}
        return replace(result, memory_per_gpu=held, step_time=step_time)

    faster = holding(after, result.step_time / 2)
    monkeypatch.setattr(kind, "answer", lambda setup: faster)
    change = Suggestion(line="", change="", why="", samples=1.0, made=lambda setup: setup)
    setup: Any = None
    found = advised(setup, holding(before, result.step_time), [change])
    assert [advice.result for advice in found] == [faster] * helps
