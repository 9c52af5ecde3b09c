"""Sliders in a notebook that ask a question of `sim` again at each position."""

from collections.abc import Callable, Iterable, Mapping
from inspect import signature
from typing import Any

from sim.config.errors import InputError
from sim.config.optional import needed
from sim.scenario.settings import Settings, settings_of


def sliders(
    ask: Callable[..., Any],
    *given: Any,
    vary: Mapping[str, Iterable[Any]],
    settings: Settings = (),
    **words: Any,
) -> Any:
    """Show `ask(*given, **words)` in a notebook, with a slider for every key of `vary`.

    A key is a keyword of `ask`, or else a setting of its scenario. `settings` hold at all
    positions. The answer is drawn and printed; a question that cannot be answered gives a line.
    Raises `InputError` if nothing is varied, for a key that `ask` does not take, and without
    ipywidgets.

    >>> sliders(sim.cost, "gpt3-175b-cost", vary={"price": ["2 USD/h"], "plan.tp": [8, 16]})
    ... # doctest: +SKIP
    """
    widgets = needed("ipywidgets", "sliders", "notebook")
    parameters = signature(ask).parameters
    keywords = {key for key in vary if key in parameters}
    if not vary:
        raise InputError("sliders", "nothing is varied", "write vary={'plan.tp': [1, 2, 4]}")
    always = settings_of(settings)
    others = [key for key in (*vary, *always) if key not in keywords]
    if others and "settings" not in parameters:
        fault = f"{getattr(ask, '__name__', 'the question')} has no {others[0]!r}"
        raise InputError("sliders", fault, f"vary one of {', '.join(parameters)}")

    def answer(**chosen: Any) -> None:
        asked = {key: chosen.pop(key) for key in keywords}
        changed = {"settings": {**always, **chosen}} if others else {}
        _show(lambda: ask(*given, **words, **asked, **changed))

    handles = {key: _slider(widgets, key, list(values)) for key, values in vary.items()}
    return widgets.interactive(answer, **handles)


def _slider(widgets: Any, key: str, values: list[Any]) -> Any:
    """Return a slider with a stop for every value; it asks when the user releases it. Raises
    `InputError` if there are no values."""
    if not values:
        raise InputError("sliders", f"{key} has no values", f"write vary={{{key!r}: [1, 2, 4]}}")
    return widgets.SelectionSlider(
        options=[(str(value), value) for value in values],
        description=key,
        continuous_update=False,
        style={"description_width": "initial"},
        layout={"width": "40em"},
    )


def _show(ask: Callable[[], Any]) -> None:
    from IPython.display import display

    try:
        answer = ask()
    except InputError as error:
        print(error)
        return
    display(answer.plot(), answer)  # type: ignore[no-untyped-call]
