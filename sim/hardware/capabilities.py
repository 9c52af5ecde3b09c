"""What can a framework do, and since when?

One description serves every release: a stack names the framework and its month (`framework`,
`released`). A choice that the description does not list is unknown, and is never refused.
"""

from collections.abc import Mapping
from dataclasses import field

from sim.config import catalog
from sim.config.dataclass import dataclass

FOLDER = "topologies/frameworks"
_OTHERS = "more"  # stands for all values that are not listed: sizes above 1, lists of modules
_MONTH = len("2025-07")


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The content of `topologies/frameworks/NAME.toml`.

    `since` gives the month and the release that brought each value of a choice. A choice is a
    choice of `sim plan --only`, or `interleaving`, or `argument`. `tried` lists the values of a
    choice that a search tries where the user does not name values.
    """

    name: str = ""
    since: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    tried: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def lacks(self, choice: str, value: str, released: str = "") -> str:
        """Why a release (the latest, if none is given) lacks a value of a choice; empty where the
        release has the value, or where this is unknown.

        >>> own = Capabilities(name="X", since={"tp": {"1": "2020-01", "more": "2021-05, 2.0"}})
        >>> own.lacks("tp", "8", "2020-07")
        'X has tp = 8 since 2021-05, 2.0'
        >>> own.lacks("tp", "8"), own.lacks("tp", "1", "2020-07"), own.lacks("pp", "2")
        ('', '', '')
        """
        known = self.since.get(choice)
        if known is None:
            return ""
        since = known.get(value) or known.get(_OTHERS)
        if since is None:
            return f"{self.name} has no {choice} = {value}"
        late = bool(released) and since[:_MONTH] > released
        return f"{self.name} has {choice} = {value} since {since}" if late else ""


def load(name: str, *, where: str) -> Capabilities:
    """The capabilities of a framework; empty capabilities without a name. Raises `InputError` for
    an unknown name."""
    return catalog.load(FOLDER, name, Capabilities, where=where) if name else Capabilities()
