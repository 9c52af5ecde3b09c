"""Calls of `sim` from Python: a wrong name or value is one line, and nothing has been done."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sim
from sim.config.checked import checked_call
from sim.config.errors import InputError
from sim.config.units import Number, PositiveSeconds

FUNCTIONS = {  # with arguments that would do
    "budget": ("gpt3-175b-cost",),
    "calibrate": ("kernels",),
    "capture": (lambda: None,),
    "collective": ("all_reduce", 1e6, "dgx-a100-hdr"),
    "compare": ("gpt2-one-gpu", ": plan.microbatch=2"),
    "cost": ("gpt3-175b-cost",),
    "explain": ("gpt2-one-gpu",),
    "diff": ("before.json.gz", "after.json.gz"),
    "explore": ("gpt2-one-gpu",),
    "goodput": ("gpt3-175b-cost",),
    "init": ("scenario",),
    "load": ("gpt2-one-gpu",),
    "measure": ("gpt2-one-gpu",),
    "moves": ("record.json.gz",),
    "names": ("models",),
    "networks": (["dgx-a100-hdr"], ["gpt2-one-gpu"]),
    "plan": ("gpt2-124m", "dgx-a100-hdr"),
    "replay": ("missing.json",),
    "run": ("gpt2-one-gpu",),
    "show": ("gpt2-124m",),
    "sliders": (sim.run, "gpt2-one-gpu"),
    "sweep": ("gpt2-one-gpu",),
    "validate": ("missing.csv",),
    "workers": ("all-reduce-ddp",),
}
ODD: list[Any] = [5, "x", "", object(), b"x", Path("missing"), float("nan"), np.arange(3), {"a": 1}]


def test_every_public_function_is_here() -> None:
    assert sorted(FUNCTIONS) == sorted(
        name
        for name in sim.__all__
        if callable(own := getattr(sim, name)) and not isinstance(own, type) and name != "step"
    )  # a mark in a script, which takes nothing


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - {"sliders"}))  # which hands others on
def test_a_wrong_keyword_is_answered_with_one_that_was_meant(name: str) -> None:
    call = getattr(sim, name)
    with pytest.raises(InputError, match=rf"sim\.{name}: no argument 'settigns'"):
        call(*FUNCTIONS[name], settigns="plan.tp=2")


@pytest.mark.parametrize(
    "name", sorted(set(FUNCTIONS) - {"validate"})
)  # of all tables that there are
def test_what_is_missing_is_named(name: str) -> None:
    with pytest.raises(InputError) as caught:
        getattr(sim, name)()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: type(odd).__name__)
@pytest.mark.parametrize(
    "name", sorted(set(FUNCTIONS) - {"capture", "names", "sliders", "validate"})
)
def test_an_odd_value_is_refused_in_one_line(name: str, odd: Any) -> None:
    """In the place of the first argument, and as settings."""
    usual = {"plan": {"global_batch": 8}}.get(name, {})
    call, first, *rest = getattr(sim, name), *FUNCTIONS[name]
    asked: list[Any] = [((odd, *rest), usual)]
    if name in ("run", "load", "cost", "explain", "collective") and not isinstance(odd, str | dict):
        asked.append(((first, *rest), {**usual, "settings": odd}))
    for args, words in asked:
        with pytest.raises(InputError) as caught:
            call(*args, **words)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (lambda: sim.Plan(global_batch=8, tpp=2), "no field 'tpp'; did you mean 'tp'"),
        (lambda: sim.Plan(), "global_batch is missing"),
        (lambda: sim.Plan(8), "fields are given by their names"),
        (lambda: sim.Scenario(model="llama3-8b"), "plan is missing"),
        (lambda: sim.Transformer(layer=3), "did you mean 'layers'"),
        (lambda: sim.Device(nam="x"), "did you mean 'name'"),
        (lambda: sim.Stack(nam="x"), "did you mean 'name'"),
        (lambda: sim.Topology(gpu=8), "no field 'gpu'; did you mean 'gpus'"),
        (lambda: sim.Straggler(rank=1, factr=2), "did you mean 'factor'"),
        (lambda: sim.run("gpt2-one-gpu", engine="clok"), "did you mean 'clock'"),
        (lambda: sim.run("gpt2-one-gpu", samples="many"), "is not a whole number"),
        (lambda: sim.sweep("gpt2-one-gpu", {"plan.tp": 1}), "is not a list or a table"),
        (lambda: sim.workers("all-reduce-ddp", "1,2"), "is not a list"),
        (lambda: sim.collective("all_reduce", "x", "dgx-a100-hdr"), "is not a quantity"),
        (lambda: sim.collective("all_reduce", -1, "dgx-a100-hdr"), "less than a byte"),
        (lambda: sim.plan("gpt2-124m", "dgx-a100-hdr", global_batch=8, seq=-1), "seq"),
    ],
)
def test_mistakes_in_objects_and_values_are_one_line(asked: Any, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        asked()
    assert "\n" not in str(caught.value)


def test_sizes_are_bytes_or_texts_as_the_command_takes_them() -> None:
    def sizes(given: Any) -> list[float]:
        times = sim.collective("all_reduce", given, "dgx-a100-hdr", gpus=8)
        return sorted({row.size for row in times.rows})

    assert sizes("1 KiB") == sizes(1024) == sizes(np.float64(1024)) == [1024.0]
    assert sizes("1KiB..4KiB") == sizes(["1 KiB", 2048, "4 KiB"]) == [1024.0, 2048.0, 4096.0]


def test_numbers_and_times_are_read_from_texts_as_the_command_reads_them() -> None:
    def asked(tokens: Number | None, deadline: PositiveSeconds = 1.0) -> tuple[Any, Any]:
        return tokens, deadline

    call = checked_call(asked, "asked")
    assert call("15T") == call(15e12) == (15e12, 1.0)  # type: ignore[arg-type]
    assert call(2, "3 weeks") == (2, 21 * 86400.0)  # type: ignore[arg-type]
    with pytest.raises(
        InputError, match=r"sim\.cost: tokens: \"many\" is no number; write it like"
    ):
        sim.cost("gpt3-175b-cost", tokens="many")  # type: ignore[attr-defined,arg-type]


def test_checked_dataclasses_are_pickled_and_numbers_of_numpy_are_numbers() -> None:
    plan = sim.Plan(global_batch=8, tp=2)
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert sim.run("gpt2-one-gpu", samples=np.int64(2)).samples == 2  # type: ignore[attr-defined,call-overload]
