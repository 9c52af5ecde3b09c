"""The store of a sweep's results: a SQLite file.

Each row is written in its own transaction as soon as it is known, so a sweep that was killed can
continue. Several sweeps may use one file at once (write-ahead log). Each result is stored with a
record of all files that its computation read (`sim.config.reads`). The result is valid only while
these files are unchanged. Every row has a checksum, because SQLite has no checksums
of its own. Rows that the disk has spoiled are computed again and counted (`damaged`).
"""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import monotonic, sleep

from sim.config.errors import InputError
from sim.config.reads import Reads, holds, joined

# Written into the header of the file, so no other database is mistaken for a store.
APPLICATION = 0x53494D31  # "SIM1"
FORMAT = 2
_PATIENCE = 60.0  # seconds to wait for another sweep's transaction
_CHEAP = 1 << 28  # bytes; SQLite checks a file of this size in a second or two

_TABLES = (
    "CREATE TABLE IF NOT EXISTS reads (id TEXT PRIMARY KEY, reads TEXT)",
    "CREATE TABLE IF NOT EXISTS results"
    " (key TEXT, reads TEXT, result TEXT, checksum TEXT, PRIMARY KEY (key, reads))",
)


class Store:
    """Results by key. Both are texts, so a result is read to the last bit as it was stored.

    Raises `InputError` for a file that is not a store, has another format or cannot be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "runs.db") as store:
    ...     store.put("key", '{"step_time": 1.5}', {})
    ...     store.get("key"), store.get("other")
    ('{"step_time": 1.5}', None)
    """

    def __init__(self, path: Path) -> None:
        self.path, self.damaged = path, 0
        self._holding: dict[str, bool] = {}
        if not path.parent.is_dir():
            raise InputError(f"--store {path}", "its folder does not exist", "make it first")
        with self._mistakes():
            self._connect()
            self._open()

    def _connect(self) -> None:
        self._db = sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None)
        # Bytes that are no text become wrong characters, which the checksum finds.
        self._db.text_factory = partial(str, encoding="utf-8", errors="replace")

    def _open(self) -> None:
        tables = self._number("SELECT count(*) FROM sqlite_master")
        if tables and self._number("PRAGMA application_id") != APPLICATION:
            self._refuse("is a database, but not a store of results", "name another file")
        if tables and (stored := self._number("PRAGMA user_version")) != FORMAT:
            what = f"has format {stored}, but this program writes format {FORMAT}"
            self._refuse(what, "name another file, or use the program that wrote it")
        if not tables:
            self._create()
        elif self.path.stat().st_size <= _CHEAP and not self._is_sound():
            self._rebuild()

    def _create(self) -> None:
        self._write_ahead()
        self._db.execute("BEGIN IMMEDIATE")  # two sweeps may open a new file at once
        for table in _TABLES:
            self._db.execute(table)
        self._db.execute(f"PRAGMA application_id = {APPLICATION}")
        self._db.execute(f"PRAGMA user_version = {FORMAT}")
        self._db.execute("COMMIT")

    def _write_ahead(self) -> None:
        """Switch to write-ahead logging. While another process opens the file, SQLite refuses the
        switch at once instead of waiting, so the switch is tried again."""
        end = monotonic() + _PATIENCE
        while True:
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or monotonic() > end:
                    raise
                sleep(0.01)
            else:
                return

    def _is_sound(self) -> bool:
        """Return whether SQLite finds the file's pages and indices in order."""
        try:
            found = self._db.execute("PRAGMA integrity_check(1)").fetchone()
            return bool(found == ("ok",)) and self._number("SELECT count(*) FROM reads") >= 0
        except sqlite3.DatabaseError:
            return False

    def _rebuild(self) -> None:
        """Move a damaged file aside, and begin a new file with the rows that are whole."""
        whole = [(table, list(self._rows(table))) for table in ("reads", "results")]
        self._db.close()
        aside = self.path.with_name(f"{self.path.name}.damaged")
        self.path.replace(aside)
        for suffix in ("-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        self._connect()
        self._create()
        for table, rows in whole:
            for row in rows:
                marks = ", ".join("?" * len(row))
                self._db.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", row)

    def _rows(self, table: str) -> Iterator[tuple[str, ...]]:
        """Yield the rows that SQLite can still read: from the first row on, then from the last row
        back, since a damaged page ends either search."""
        for order in ("ASC", "DESC"):
            try:
                yield from self._db.execute(f"SELECT * FROM {table} ORDER BY rowid {order}")
                return
            except sqlite3.DatabaseError:
                self.damaged += 1

    def _refuse(self, fault: str, remedy: str) -> None:
        self._db.close()
        raise InputError(f"--store {self.path}", fault, remedy)

    def _number(self, query: str) -> int:
        return int(self._db.execute(query).fetchone()[0])

    def get(self, key: str) -> str | None:
        """Return the result stored under a key, if all files behind it are unchanged."""
        query = (
            "SELECT results.reads, reads.reads, result, checksum FROM results"
            " LEFT JOIN reads ON results.reads = reads.id WHERE key = ?"
        )
        try:
            found = self._db.execute(query, (key,)).fetchall()
        except sqlite3.DatabaseError:  # the file was too large to be checked when it was opened
            self.damaged += 1
            return None
        for name, reads, result, checksum in found:
            if not (isinstance(reads, str) and _id(reads) == name):
                self.damaged += 1
            elif not (isinstance(result, str) and _checksum(key, name, result) == checksum):
                self.damaged += 1
                self._forget(key, name)
            elif self._hold(name, reads):
                return result
        return None

    def _hold(self, name: str, reads: str) -> bool:
        """Return whether the files behind a row are unchanged. Each set of files is checked once
        while the store is open."""
        if name not in self._holding:
            self._holding[name] = holds({(look, path): at for look, path, at in json.loads(reads)})
        return self._holding[name]

    def _forget(self, key: str, name: str) -> None:
        with self._mistakes():
            self._db.execute("DELETE FROM results WHERE key = ? AND reads = ?", (key, name))

    def put(self, key: str, result: str, reads: Reads) -> None:
        """Store a result and the reads that it rests on, unless it is already stored."""
        text = json.dumps(sorted([*where, found] for where, found in reads.items()))
        name = _id(text)
        row = (key, name, result, _checksum(key, name, result))
        with self._mistakes():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._db.execute("INSERT OR REPLACE INTO reads VALUES (?, ?)", (name, text))
                self._db.execute("INSERT OR IGNORE INTO results VALUES (?, ?, ?, ?)", row)
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

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
            remedy = "stored results stay readable; make room or name another file"
            raise InputError(f"--store {self.path}", f"cannot be used ({error})", remedy) from None


def _id(reads: str) -> str:
    return joined([reads])


def _checksum(key: str, reads: str, result: str) -> str:
    return joined([key, reads, result])
