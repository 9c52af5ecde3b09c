"""What is shown as text and in notebooks by a module beside it, which it does not import."""

from importlib import import_module
from typing import ClassVar


class Shown:
    """Shows itself by `text` and `html` of the module that `view` names."""

    __slots__ = ()
    view: ClassVar[str]

    def __str__(self) -> str:
        return str(import_module(self.view).text(self))

    def _repr_html_(self) -> str:
        return str(import_module(self.view).html(self))
