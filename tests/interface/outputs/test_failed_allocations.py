"""An allocation that fails while a command reads, plays or writes: one line, and nothing half
written.

The interpreter fails the allocation itself, the n-th of a command or of its writing (CPython's
`_testcapi.set_nomemory`), so that those of libraries are tried as ours are.
"""

import os
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
PLACES = 4  # that fail, one in each child


def child(arguments: Sequence[str], arm: Callable[[], None]) -> int:
    """The exit code of a command in a process that `arm` has prepared; what it prints is `SAID`."""
    process = os.fork()
    if process == 0:
        code = 70
        with suppress(BaseException):
            said = os.open(SAID, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
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


def armed(number: int, target: object, name: str) -> Callable[[], None]:
    """Has the n-th allocation fail behind the first call of a function."""
    function = getattr(target, name)

    def arm() -> None:
        def called(*given: object) -> object:
            setattr(target, name, function)
            nomemory(number, number + 1)
            return function(*given)

        setattr(target, name, called)

    return arm


def numbers(last: float = 3e5) -> Iterator[int]:
    """Places of allocations, each so many times as far as the one before."""
    return (round(last ** (place / (PLACES - 1))) for place in range(PLACES))


def told(code: int) -> bool:
    """Whether a command has answered, or its last line is the only complaint; or the interpreter
    has taken the failure for another mistake (`os.stat`: TypeError of a path that is none)."""
    *before, last = SAID.read_text().splitlines() or [""]
    if code == 70:
        place = next(line for line in reversed(before) if line.startswith('  File "'))
        return str(ROOT / "sim") not in place and not last.startswith("MemoryError")
    mistake = last.startswith("error: ") and not any("error" in line for line in before)
    return code == 0 or (code == 2 and mistake)


@pytest.mark.parametrize("stage", ["reading", "writing"])
@pytest.mark.parametrize("output", OUTPUTS)
def test_an_output_is_the_old_file_or_the_new_one(
    output: str, stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, name = OUTPUTS[output]
    path = Path(name)
    assert child(arguments, lambda: None) == 0
    size, before, ends = path.stat().st_size, names(), set[int]()
    target, function = (files, "_sweep") if stage == "writing" else (cli._Group, "invoke")
    for number in numbers():
        path.write_bytes(OLD)
        code = child(arguments, armed(number, target, function))
        assert told(code), (number, code, SAID.read_text())
        is_new = path.stat().st_size > 0.5 * size  # not to the byte: it tells its own time
        assert is_new or (code and path.read_bytes() == OLD), number
        assert names() == before, number
        assert not list(Path().glob(".part-*")), number
        ends.add(code)
    assert 2 in ends


def test_a_store_keeps_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that were stored stay, and the same command goes on once there is memory."""
    monkeypatch.chdir(tmp_path)

    def asked(points: str) -> tuple[str, ...]:
        vary = f"--vary=plan.microbatch={points}"
        return ("sweep", "gpt2-one-gpu", vary, "--jobs=1", "--store=rows.db")

    assert child(asked("1"), lambda: None) == 0
    first, ends = _rows(), set[int]()
    for name in ("__init__", "put"):
        for number in numbers(1e4):
            code = child(asked("1,2,4"), armed(number, Store, name))
            assert told(code), (number, code, SAID.read_text())
            assert first <= _rows(), number
            ends.add(code)
    assert 2 in ends
    assert child(asked("1,2,4"), lambda: None) == 0
    assert len(_rows()) == 3


def _rows() -> set[str]:
    with sqlite3.connect("rows.db") as rows:
        assert rows.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return {key for (key,) in rows.execute("SELECT key FROM results")}
