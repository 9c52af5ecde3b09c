"""Which changes of a script are advised."""

from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import pytest

import sim
from sim import kind
from sim.analysis.explanation.advice import advised
from sim.config.errors import InputError
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


Names = tuple[str, ...]


@pytest.mark.parametrize(
    ("shares", "refused", "made"),
    [
        ({"half": 0.5, "compile": 0.8, "fuse": 0.9, "slow": 1.1}, {}, "fuse half compile"),
        (
            {"half": 0.5, "larger": 0.9, "compile": 0.85, "fuse": 0.86},
            {"larger": "fuse", "fuse": "larger"},  # either, not both
            "fuse half compile",
        ),
    ],
)
def test_a_change_that_compiling_hides_is_made_before_it(
    shares: dict[str, float], refused: dict[str, str], made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`shares` are the parts of the step that changes leave; "compile" hides what "fuse" edits."""
    result = sim.run("gpt2-one-gpu")

    def changed(setup: Names, name: str) -> Names:
        if refused.get(name) in setup:
            raise InputError("a.py", "cannot be changed", "leave it")
        return setup if name == "fuse" and "compile" in setup else (*setup, name)

    def answer(setup: Names) -> Result:
        return replace(result, step_time=result.step_time * prod(shares[own] for own in setup))

    def suggestion(name: str) -> Suggestion:
        edit = partial(changed, name=name)
        return Suggestion(line="", at="a.py:1", change=name, why=name, samples=1.0, made=edit)

    monkeypatch.setattr(kind, "answer", answer)
    nothing: Any = ()
    together, *_ = advised(nothing, result, [suggestion(name) for name in shares])
    names = [own.change for own in together.changes]
    assert names == made.split()
    assert together.change == f"all of this: {'; '.join(f'{name} (a.py:1)' for name in names)}"
    assert together.each == pytest.approx(answer(tuple(names)).step_time)
