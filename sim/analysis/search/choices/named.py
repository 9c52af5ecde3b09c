"""Choices by name, as `sim plan --only` and `--without` give them."""

from collections.abc import Iterable

from sim.analysis.search.choices.choice import Choice
from sim.analysis.search.choices.mesh import sizes
from sim.analysis.search.choices.passes import PASSES
from sim.analysis.search.choices.states import STATES
from sim.config.errors import InputError
from sim.config.schema import nearest


def choices() -> tuple[Choice, ...]:
    """All choices, in the order in which they are made: each sees those before it."""
    return (*sizes(), *PASSES, *STATES)


def parsed(words: Iterable[str], option: str) -> dict[str, tuple[str, ...]]:
    """Options such as "zero=1,3" by the name of their choice. Raises `InputError`.

    >>> parsed(["zero=1,3", "schedule=1f1b"], "--only")
    {'zero': ('1', '3'), 'schedule': ('1f1b',)}
    """
    known = {choice.name: choice for choice in choices()}
    values: dict[str, tuple[str, ...]] = {}
    for word in words:
        name, equals, own = word.partition("=")
        if name not in known:
            raise InputError(option, f"{name!r} is not a choice", nearest(name, [*known]))
        if not equals or not own:
            raise InputError(option, f"{word!r} has no value", f"write {name}=VALUE[,VALUE]")
        values[name] = (*values.get(name, ()), *own.split(","))
        known[name].check(values[name], option)
    return values
