"""What is shown as text and in notebooks by a module beside it, which it does not import."""

from importlib import import_module
from typing import Any, ClassVar


class Shown:
    """Shows itself by `text` and `html` of the module that `view` names; within a list or at a
    prompt by its `in_a_line`, or else by the first line of its text."""

    __slots__ = ()
    view: ClassVar[str]

    def __init_subclass__(cls, **given: Any) -> None:
        """Dataclasses leave a `__repr__` of their own alone, an inherited one they replace."""
        super().__init_subclass__(**given)
        cls.__repr__ = Shown.__repr__  # type: ignore[method-assign]

    def __str__(self) -> str:
        return str(import_module(self.view).text(self))

    def __repr__(self) -> str:
        in_a_line = getattr(import_module(self.view), "in_a_line", None)
        line = in_a_line(self) if in_a_line else str(self).partition("\n")[0]
        return f"<{type(self).__name__}: {' '.join(line.split())}>"

    def _repr_html_(self) -> str:
        return str(import_module(self.view).html(self))
