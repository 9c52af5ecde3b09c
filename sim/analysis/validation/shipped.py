"""The measured tables that come with the project, and the tables of the user's own
`measurements/`."""

from pathlib import Path

from sim.config import catalog, reads
from sim.config.errors import InputError

FOLDER = "measurements"


def tables() -> list[Path]:
    """Return every table, by name. A table of the user's own folder replaces the packaged table."""
    found = {
        path.stem: path
        for root in reversed(catalog.roots())
        for path in reads.listed(root / FOLDER, ".csv")
    }
    return [found[name] for name in sorted(found)]


def table(name: str) -> Path:
    """Return the table of a name or a path. Raises `InputError` for an unknown name.

    >>> table("zero_bubble").name, table("mine/runs.csv").name
    ('zero_bubble.csv', 'runs.csv')
    """
    if name.endswith(".csv"):
        return Path(name)
    known = {path.stem: path for path in tables()}
    if name not in known:
        raise InputError.unknown("sim validate", f"no table named {name!r}", name, list(known))
    return known[name]
