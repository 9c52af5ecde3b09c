"""One choice of a plan, and the values that a search tries."""

from collections.abc import Callable, Iterable, Iterator
from math import isqrt
from typing import Any

from sim.analysis.search.space import Space
from sim.config.checked import replaced
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.parallel.plan import Plan

YES_OR_NO = ("yes", "no")


@dataclass(frozen=True, kw_only=True)
class Choice:
    """`possible` gives all values that the sizes allow; `usual` says which of these values are
    tried unless the user asks for others. `take` makes a plan with a value, and `read` returns a
    plan's value; by default, the value is the plan's field of this name. Plans to which the choice
    does not apply stay as they are.

    In an option, values are numbers or `words`; an `open` choice accepts other words, too.
    """

    name: str
    possible: Callable[[Space, Plan], Iterable[Any]]
    words: Callable[[], Iterable[str]] | None = None
    open: bool = False
    applies: Callable[[Plan], bool] = lambda plan: True
    usual: Callable[[Space, Plan, Any], bool] = lambda space, plan, value: True
    take: Callable[[Space, Plan, Any], Plan] | None = None
    read: Callable[[Space, Plan], Any] | None = None

    def plans(self, space: Space, plan: Plan) -> Iterator[Plan]:
        """Yield the plan with each of the values to try."""
        if not self.applies(plan):
            yield plan
            return
        for value in self._tried(space, plan):
            if self.take is not None:
                yield self.take(space, plan, value)
            else:
                yield replaced(plan, **{self.name: value})

    def said(self, space: Space, plan: Plan) -> str:
        """Return a plan's value as written in an option; empty where the choice does not apply."""
        value = self.read(space, plan) if self.read else getattr(plan, self.name)
        return written(value) if value is not None and self.applies(plan) else ""

    def tried(self, space: Space, plans: Iterable[Plan]) -> set[str] | None:
        """Return the words that are tried unasked on some plan; None if the choice applies to no
        plan."""
        there = [plan for plan in plans if self.applies(plan)]
        usual = (
            written(value)
            for plan in there
            for value in self.possible(space, plan)
            if self.usual(space, plan, value)
        )
        return set(usual) if there else None

    def check(self, values: Iterable[str], option: str) -> None:
        """Raise `InputError` for a word that stands for no value."""
        words = None if self.words is None else list(self.words())
        for value in values:
            if words is None and not value.isdecimal():
                fault = f"{self.name} = {value!r} is not a number"
                raise InputError(option, fault, f"write {self.name}=4")
            if words and value not in words and not (self.open and option == "--only"):
                fault = f"{value!r} is not a value of {self.name}"
                raise InputError.unknown(option, fault, value, words)

    def _tried(self, space: Space, plan: Plan) -> Iterator[Any]:
        tried = space.capabilities.tried.get(self.name)
        for value in self.possible(space, plan):
            word = written(value)
            if self.name in space.only:
                asked = True
            elif tried is not None:
                asked = word in tried
            else:
                asked = self.usual(space, plan, value) and not space.lacks(self.name, word)
            if asked and space.allows(self.name, word):
                yield value


def written(value: object) -> str:
    """Return a value as it is written in an option.

    >>> written(True), written(4), written("gpipe"), written(("mlp", "layernorm"))
    ('yes', '4', 'gpipe', 'mlp+layernorm')
    """
    if isinstance(value, tuple):
        return "+".join(value)
    return YES_OR_NO[not value] if isinstance(value, bool) else str(value)


def divisors(number: int, most: int) -> list[int]:
    """Return all divisors up to `most`, ascending.

    >>> divisors(24, 8)
    [1, 2, 3, 4, 6, 8]
    """
    small = [each for each in range(1, isqrt(number) + 1) if number % each == 0]
    return sorted(each for each in {*small, *(number // each for each in small)} if each <= most)
