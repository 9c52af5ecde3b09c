"""Where a sweep keeps its results: a SQLite file, keyed by `sim.sweep.fingerprint`.

A row is written as soon as it is known, in a transaction of its own, so that a sweep killed at
any moment continues where it was. Several sweeps may use one file at once (write-ahead log).
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sim.config.errors import InputError

# Written into the header of the file, so that no other database is mistaken for a store.
APPLICATION = 0x53494D31  # "SIM1"
FORMAT = 1
_PATIENCE = 60.0  # seconds to wait for another sweep's transaction


class Store:
    """Results by key: texts, so that what was stored is what is read, to the last bit.

    Raises `InputError` for a file that is not a store, is of another version or not writable.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "runs.db") as store:
    ...     store.put("key", '{"step_time": 1.5}')
    ...     store.get("key"), store.get("other")
    ('{"step_time": 1.5}', None)
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.parent.is_dir():
            raise InputError(f"--store {path}", "its folder does not exist", "make it first")
        with self._mistakes():
            self._db = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)
            self._open()

    def _open(self) -> None:
        tables = self._number("SELECT count(*) FROM sqlite_master")
        if tables and self._number("PRAGMA application_id") != APPLICATION:
            self._refuse("is a database, but not a store of results", "name another file")
        if tables and (stored := self._number("PRAGMA user_version")) != FORMAT:
            what = f"is of format {stored}, this program writes format {FORMAT}"
            self._refuse(what, "name another file, or use the program that wrote it")
        if not tables:
            self._create()

    def _create(self) -> None:
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("BEGIN IMMEDIATE")  # two sweeps may open a new file at once
        self._db.execute("CREATE TABLE IF NOT EXISTS results (key TEXT PRIMARY KEY, result TEXT)")
        self._db.execute(f"PRAGMA application_id = {APPLICATION}")
        self._db.execute(f"PRAGMA user_version = {FORMAT}")
        self._db.execute("COMMIT")

    def _refuse(self, what: str, remedy: str) -> None:
        self._db.close()
        raise InputError(f"--store {self.path}", what, remedy)

    def _number(self, query: str) -> int:
        return int(self._db.execute(query).fetchone()[0])

    def get(self, key: str) -> str | None:
        """What was stored under a key."""
        with self._mistakes():
            row = self._db.execute("SELECT result FROM results WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def put(self, key: str, result: str) -> None:
        """Keep a result; the first one stays where another sweep was faster."""
        with self._mistakes():
            self._db.execute("INSERT OR IGNORE INTO results VALUES (?, ?)", (key, result))

    def __len__(self) -> int:
        return self._number("SELECT count(*) FROM results")

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    @contextmanager
    def _mistakes(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            remedy = "what is stored stays readable; make room or name another file"
            raise InputError(f"--store {self.path}", f"cannot be used ({error})", remedy) from None
