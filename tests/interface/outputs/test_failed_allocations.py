"""An allocation that fails while a command reads, plays or writes: one line, and nothing half
written.

The interpreter fails the allocation itself, the n-th of a command or of its writing (CPython's
`_testcapi.set_nomemory`), so that those of libraries are tried as ours are.
"""

import os
import signal
import sqlite3
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from sim.analysis.sweeps.store import Store
from sim.config import files
from sim.interface.cli import main as cli
from tests.interface.outputs.test_full_disk import OLD, OUTPUTS, names

nomemory = pytest.importorskip("_testcapi").set_nomemory

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]
SAID = Path("said.txt")
READING, WRITING = 8, 6  # places that fail, each in a process of its own


def child(arguments: Sequence[str], arm: Callable[[], None]) -> int:
    """The exit code of a command in a process that `arm` has prepared; what it prints is `SAID`."""
    process = os.fork()
    if process == 0:
        code = 70
        with suppress(BaseException):
            said = os.open(SAID, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
            os.dup2(said, 1)
            os.dup2(said, 2)
            sys.stdout, sys.stderr = open(1, "w"), open(2, "w")  # noqa: SIM115 - pytest's are files
            arm()
            try:
                cli.main.main(list(arguments), prog_name="sim")
                code = 0
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 0
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def at_first(target: object, name: str, act: Callable[[], None]) -> Callable[[], None]:
    """Has the first call of a function do something before."""
    function = getattr(target, name)

    def arm() -> None:
        def called(*given: object) -> object:
            setattr(target, name, function)
            act()
            return function(*given)

        setattr(target, name, called)

    return arm


def failing(number: int, target: object, name: str) -> Callable[[], None]:
    """Has the n-th allocation fail behind the first call of a function."""
    return at_first(target, name, lambda: nomemory(number, number + 1))


def numbers(places: int, last: float = 3e5) -> Iterator[int]:
    """Places of allocations, each so many times as far as the one before."""
    return (round(last ** (place / (places - 1))) for place in range(places))


def told(code: int) -> bool:
    """Whether a command has answered, or its last line is the only complaint; or the interpreter
    has taken the failure for another mistake (`os.stat`: TypeError of a path that is none). The
    process may also end inside of a library's C++, which cannot pass the failure on."""
    if code == -signal.SIGABRT:
        return "pybind11" in SAID.read_text()
    *before, last = SAID.read_text().splitlines() or [""]
    if code == 70:
        place = next(line for line in reversed(before) if line.startswith('  File "'))
        return str(ROOT / "sim") not in place and not last.startswith("MemoryError")
    mistake = last.startswith("error: ") and not any("error" in line for line in before)
    return code == 0 or (code == 2 and mistake)


class Tried:
    """An output, and what has become of it each time that an allocation has failed."""

    def __init__(self, output: str) -> None:
        self.arguments, name = OUTPUTS[output]
        self.path = Path(name)
        assert child(self.arguments, lambda: None) == 0
        self.size, self.names, self.ends = self.path.stat().st_size, names(), set[int]()
        self.path.write_bytes(OLD)

    def ended(self, number: int, code: int) -> None:
        """The old file stays where the command fails; where it does not, the new one is there."""
        assert told(code), (number, code, SAID.read_text())
        is_new = self.path.stat().st_size > 0.5 * self.size  # not to the byte: it tells its time
        assert is_new or (code and self.path.read_bytes() == OLD), number
        assert names() == self.names, number
        self.path.write_bytes(OLD)
        self.ends.add(code)


def test_a_command_that_reads_and_plays_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tried = Tried("timeline")
    for number in numbers(READING):
        tried.ended(number, child(tried.arguments, failing(number, cli._Group, "invoke")))
        assert not list(Path().glob(".part-*")), number
    assert 2 in tried.ends


@pytest.mark.parametrize("output", OUTPUTS)
def test_an_output_is_the_old_file_or_the_new_one(
    output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command forks where it begins to write: each fork fails at one place."""
    monkeypatch.chdir(tmp_path)
    tried = Tried(output)

    def fail_in_forks() -> None:
        for number in numbers(WRITING):
            sys.stdout.flush()
            os.truncate(SAID, 0)
            process = os.fork()
            if process == 0:
                nomemory(number, number + 1)
                return
            tried.ended(number, os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
        assert 2 in tried.ends

    code = child(tried.arguments, at_first(files, "_sweep", fail_in_forks))
    assert code == 0, SAID.read_text()
    assert not list(Path().glob(".part-*"))


def test_a_store_keeps_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that were stored stay, and the same command goes on once there is memory."""
    monkeypatch.chdir(tmp_path)

    def asked(points: str) -> tuple[str, ...]:
        vary = f"--vary=plan.microbatch={points}"
        return ("sweep", "gpt2-one-gpu", vary, "--jobs=1", "--store=rows.db")

    assert child(asked("1"), lambda: None) == 0
    first, stored, ends = _rows(), Path("rows.db").read_bytes(), set[int]()
    for name in ("__init__", "put"):
        for number in numbers(4, 1e4):
            Path("rows.db").write_bytes(stored)
            code = child(asked("1,2"), failing(number, Store, name))
            assert told(code), (number, code, SAID.read_text())
            assert first <= _rows(), number
            ends.add(code)
    assert 2 in ends
    assert child(asked("1,2"), lambda: None) == 0
    assert len(_rows()) == 2


def _rows() -> set[str]:
    with sqlite3.connect("rows.db") as rows:
        assert rows.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return {key for (key,) in rows.execute("SELECT key FROM results")}
