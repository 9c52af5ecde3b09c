"""A table of a recording: what others name by number is there once."""

from typing import Generic, TypeVar

Entry = TypeVar("Entry")


class Table(Generic[Entry]):
    """Entries of which each is kept once, in the order in which they came."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._numbers: dict[str, int] = {}

    def number(self, entry: Entry) -> int:
        """The place of an entry, a new one if it is not there yet."""
        number = self._numbers.setdefault(repr(entry), len(self.entries))
        if number == len(self.entries):
            self.entries.append(entry)
        return number
