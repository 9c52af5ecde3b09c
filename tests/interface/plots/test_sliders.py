"""Sliders ask the question again wherever they stand."""

import sys
from importlib.util import find_spec
from typing import Any

import pytest

import sim
from sim.config.errors import InputError
from sim.interface.plots.sliders import sliders

pytestmark = pytest.mark.skipif(find_spec("ipywidgets") is None, reason="needs ipywidgets")


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is displayed."""
    found: list[Any] = []
    monkeypatch.setattr("IPython.display.display", lambda *these: found.extend(these))
    return found


def move(board: Any, key: str, to: Any) -> None:
    """The slider of a key, as with a mouse."""
    (slider,) = (own for own in board.children[:-1] if own.description == key)
    slider.value = to


def test_a_slider_changes_the_scenario(shown: list[Any]) -> None:
    vary = {"plan.microbatch": [1, 2]}
    board = sliders(sim.run, "gpt2-one-gpu", vary=vary, settings="model.seq=512")
    move(board, "plan.microbatch", 2)
    first, second = shown[1::2]  # behind their pictures
    assert (first.plan.microbatch, second.plan.microbatch) == (1, 2)
    assert second.inputs.change == {"model.seq": 512}


def test_a_slider_may_be_a_keyword_of_the_question(shown: list[Any]) -> None:
    board = sliders(sim.cost, "gpt3-175b-cost", vary={"price": ["1 USD/h", "2 USD/h"]})
    move(board, "price", "2 USD/h")
    once, twice = shown[1::2]
    assert twice.dollars == pytest.approx(2 * once.dollars)


def test_what_cannot_be_answered_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    board = sliders(sim.run, "gpt2-one-gpu", vary={"plan.tp": [1, 2]})
    move(board, "plan.tp", 2)
    assert "tp*pp = 2 does not divide the 1 GPUs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("ask", "vary", "said"),
    [
        (sim.run, {}, "nothing is varied"),
        (sim.run, {"plan.tp": []}, "plan.tp has no values"),
        (sim.plan, {"plan.tp": [1]}, r"plan has no 'plan\.tp'; vary one of model"),
    ],
)
def test_sliders_without_a_use_are_refused(ask: Any, vary: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        sliders(ask, "gpt2-one-gpu", vary=vary)


def test_without_ipywidgets_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    with pytest.raises(InputError, match=r"pip install 'clustersim\[notebook\]'"):
        sliders(sim.run, "gpt2-one-gpu", vary={"plan.microbatch": [1]})
