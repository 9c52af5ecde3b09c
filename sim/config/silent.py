"""Tables of arguments that affect neither time nor memory of a training step, by section."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache

Silent = Mapping[str, str]
"""Words that match names, by section: `*`, `?` and `[...]` are as in a shell, `!` excludes names.
Words under "" match full names, section included. Blanks separate the sections of a key."""


def is_silent(argument: str, table: Silent) -> bool:
    """Whether a table lists an argument.

    >>> table = {"": "seed log-*", "train data": "* !packed*"}
    >>> [is_silent(name, table) for name in ("log-interval", "data.path", "data.packed_size")]
    [True, True, False]
    """
    return any(_matches(argument, *line) for line in _lines(tuple(table.items())))


@cache
def _lines(table: tuple[tuple[str, str], ...]) -> list[tuple[str, list[str], list[str]]]:
    """For each section: its name with a dot, its words, and the words that exclude names."""
    lines = []
    for sections, names in table:
        words = names.split()
        kept = [word for word in words if not word.startswith("!")]
        out = [word[1:] for word in words if word.startswith("!")]
        lines += [
            (f"{section}." if section else "", kept, out) for section in sections.split() or [""]
        ]
    return lines


def _matches(argument: str, section: str, names: list[str], out: list[str]) -> bool:
    if not argument.startswith(section):
        return False
    name = argument[len(section) :]
    return any(fnmatchcase(name, word) for word in names) and not any(
        fnmatchcase(name, word) for word in out
    )
