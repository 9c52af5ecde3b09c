"""Choices by name, as `sim plan --only` and `--without` give them."""

from collections.abc import Iterable

from sim.analysis.search.choices.choice import Choice
from sim.analysis.search.choices.mesh import sizes
from sim.analysis.search.choices.passes import PASSES
from sim.analysis.search.choices.states import STATES
from sim.analysis.search.space import Space
from sim.config.errors import InputError
from sim.parallel.plan import Plan


def choices() -> tuple[Choice, ...]:
    """Return all choices in the order in which they are made; each choice sees the earlier
    choices."""
    return (*sizes(), *PASSES, *STATES)


def said(space: Space, plan: Plan) -> dict[str, str]:
    """Return the choices of a layout by name, as `--only` takes them."""
    words = {choice.name: choice.said(space, plan) for choice in choices()}
    return {name: word for name, word in words.items() if word}


def outside(space: Space, plan: Plan) -> dict[str, str]:
    """Return the choices of a layout whose values the space excludes."""
    return {
        name: word
        for name, word in said(space, plan).items()
        if word not in space.only.get(name, (word,))
        or (name not in space.only and space.lacks(name, word))
    }


def not_tried(
    space: Space, plans: Iterable[Plan]
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return the words of each choice that the software has but no plan tries unasked, and the
    words that the software lacks."""
    asked, lacking, some = dict[str, list[str]](), dict[str, list[str]](), list(plans)
    for choice in choices():
        if choice.name in space.only or choice.words is None:
            continue
        fixed = space.capabilities.tried.get(choice.name)
        tried = choice.tried(space, some) if fixed is None else fixed
        for word in choice.words():
            if space.lacks(choice.name, word):
                lacking.setdefault(choice.name, []).append(word)
            elif tried is not None and word not in tried:
                asked.setdefault(choice.name, []).append(word)
        if choice.open and fixed is None:
            asked.setdefault(choice.name, []).append("modules, such as mlp+layernorm")
    return asked, lacking


def parsed(words: Iterable[str], option: str) -> dict[str, tuple[str, ...]]:
    """Return the values of options such as "zero=1,3" by their choice. Raises `InputError`.

    >>> parsed(["zero=1,3", "schedule=1f1b"], "--only")
    {'zero': ('1', '3'), 'schedule': ('1f1b',)}
    """
    known = {choice.name: choice for choice in choices()}
    values: dict[str, tuple[str, ...]] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if name not in known:
            raise InputError.unknown(option, f"{name!r} is not a choice", name, [*known])
        if not equals or not text:
            raise InputError(option, f"{word!r} has no value", f"write {name}=VALUE[,VALUE]")
        values[name] = (*values.get(name, ()), *text.split(","))
        known[name].check(values[name], option)
    return values
