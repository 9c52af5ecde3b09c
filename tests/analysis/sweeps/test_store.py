"""The store of a sweep: what was put is there, whatever happens to those who put it."""

import random
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from sim.analysis.sweeps.store import Store
from sim.config import reads
from sim.config.errors import InputError

WRITER = """
import sys
from pathlib import Path
from sim.analysis.sweeps.store import Store
with Store(Path(sys.argv[1])) as store:
    for number in range(200):
        store.put(f"{sys.argv[2]} {number}", str(number), {})
        store.put(f"both {number}", str(number), {})
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


def test_what_was_put_is_there_after_opening_again(path: Path) -> None:
    with Store(path) as store:
        store.put("key", "0.1", {})
    with Store(path) as store:
        assert (store.get("key"), store.get("other"), len(store)) == ("0.1", None, 1)


def test_the_first_answer_to_a_question_stays(path: Path) -> None:
    with Store(path) as store:
        store.put("key", "first", {})
        store.put("key", "second", {})
        assert store.get("key") == "first"


def test_two_writers_at_once_lose_nothing(path: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), name]) for name in ("a", "b")
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    with Store(path) as store:
        assert len(store) == 600
        assert store.get("a 199") == store.get("b 199") == store.get("both 199") == "199"
    assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_full_disk_is_one_error_and_the_store_stays_readable(path: Path) -> None:
    with Store(path) as store:
        store.put("before", "kept", {})
        pages = store._db.execute("PRAGMA page_count").fetchone()[0]
        store._db.execute(f"PRAGMA max_page_count = {pages + 1}")  # as if the disk ended there
        with pytest.raises(InputError, match="full"):
            store.put("large", "x" * 100_000, {})
        assert store.get("before") == "kept"
    with Store(path) as store:
        assert (store.get("before"), store.get("large")) == ("kept", None)


@pytest.mark.parametrize(
    ("statements", "complaint"),
    [
        (["CREATE TABLE other (x)"], "not a store of results"),
        (
            [
                "CREATE TABLE results (x)",
                "PRAGMA application_id = 1397312817",
                "PRAGMA user_version = 99",
            ],
            "has format 99",
        ),
    ],
)
def test_another_database_and_another_format_are_refused_untouched(
    path: Path, statements: list[str], complaint: str
) -> None:
    with sqlite3.connect(path) as db:
        for statement in statements:
            db.execute(statement)
    db.close()
    before = path.read_bytes()
    with pytest.raises(InputError, match=complaint):
        Store(path)
    assert path.read_bytes() == before


def test_a_text_file_is_no_store(path: Path) -> None:
    path.write_text("not a database, but long enough to look at " * 10)
    with pytest.raises(InputError, match="not a database"):
        Store(path)


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="folder does not exist"):
        Store(tmp_path / "nowhere" / "runs.db")


def test_a_row_of_a_store_whose_bits_were_flipped_is_right_or_missing_and_counted(
    path: Path, tmp_path: Path
) -> None:
    told = {f"key {number}": f'{{"step_time": {number / 7}}}' for number in range(20)}
    with Store(path) as store:
        for key, result in told.items():
            store.put(key, result, {("content", "no such file"): ""})
    whole, chance, refused, mended = path.read_bytes(), random.Random(3), 0, 0
    for number in range(100):
        flipped = bytearray(whole)
        flipped[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        hurt = tmp_path / f"{number}.db"
        hurt.write_bytes(flipped)
        try:
            opened = Store(hurt)
        except InputError:
            refused += 1
            continue
        with opened as store:
            found = {key: store.get(key) for key in told}
            assert all(found[key] in (told[key], None) for key in told)
            missing = [key for key, text in found.items() if text is None]
            for key in missing:
                store.put(key, told[key], {("content", "no such file"): ""})
            assert [store.get(key) for key in told] == list(told.values()), number
            mended += bool(missing) and store.damaged > 0
    assert mended > 12
    assert refused < 20  # in the hundred bytes that say what the file is


def test_a_damaged_file_is_laid_aside_and_its_whole_rows_are_kept(path: Path) -> None:
    with Store(path) as store:
        for number in range(500):
            store.put(f"key {number}", "x" * 40, {})
    torn = bytearray(path.read_bytes())
    torn[4096 * 5 : 4096 * 6] = bytes(4096)
    path.write_bytes(torn)
    with Store(path) as store:
        assert 0 < len(store) < 500
        assert store.damaged > 0
        assert {store.get(f"key {number}") for number in range(500)} == {"x" * 40, None}
    assert path.with_name("runs.db.damaged").read_bytes() == torn


def test_an_answer_counts_only_as_long_as_what_it_rests_on_is_as_it_was(
    path: Path, tmp_path: Path
) -> None:
    read = tmp_path / "read.toml"
    read.write_text("a = 1")
    with reads.recorded() as seen:
        reads.text(read)
    with Store(path) as store:
        store.put("key", "first", seen)
        assert store.get("key") == "first"
    read.write_text("a = 2")
    with Store(path) as store:
        assert store.get("key") is None
    read.write_text("a = 1")
    with Store(path) as store:
        assert store.get("key") == "first"
