"""A disk that is full, or a process that is killed, at any byte of what a command writes: the old
file stays as it was, or the new one is whole, and nothing is left beside it.

The kernel fails the write itself (a limit on the size of files), so that files written by
libraries are tried as ours are.
"""

import os
import resource
import signal
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from sim.interface.cli.main import main

RUN = ("run", "gpt2-one-gpu")
OUTPUTS: dict[str, tuple[tuple[str, ...], str]] = {
    "timeline": ((*RUN, "--timeline", "spans.csv"), "spans.csv"),
    "trace": ((*RUN, "--trace", "trace.json"), "trace.json"),
    "report": ((*RUN, "--report", "page.html"), "page.html"),
    "memory": ((*RUN, "--memory", "memory.csv"), "memory.csv"),
    "memory's picture": ((*RUN, "--memory", "memory.png"), "memory.png"),
    "picture": ((*RUN, "--picture", "step.png"), "step.png"),
    "order": (("run", "pipedream-gnmt", "--actions", "order.csv"), "order.csv"),
}
SHARES = (0.0, 0.01, 0.25, 0.5, 0.75, 0.99)  # of the whole file that there is room for
OLD = b"what was there before\n"

pytestmark = pytest.mark.long


def child(arguments: Sequence[str], room: int | None, *, killed: bool) -> int:
    """The exit code of a command whose files have so much room; -9 or the like if it was killed."""
    process = os.fork()
    if process == 0:
        code = 70
        with suppress(BaseException):
            sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - pytest's are files
            if room is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
                way = signal.SIG_DFL if killed else signal.SIG_IGN
                signal.signal(signal.SIGXFSZ, way)
            try:
                main.main(list(arguments), prog_name="sim")
                code = 0
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 0
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def names() -> set[str]:
    """Files of the folder; parts that a killed process leaves are taken away by the next one."""
    return {path.name for path in Path().iterdir() if not path.name.startswith(".part-")}


@pytest.mark.parametrize("output", OUTPUTS)
def test_an_output_is_the_old_file_or_the_new_one(
    output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, name = OUTPUTS[output]
    path = Path(name)
    assert child(arguments, None, killed=False) == 0
    whole, before = path.read_bytes(), names()
    for killed in (False, True):
        for share in SHARES if len(whole) > 100 else SHARES[:1]:
            path.write_bytes(OLD)
            code = child(arguments, int(share * len(whole)), killed=killed)
            assert code == (-signal.SIGXFSZ if killed else 2), share
            assert path.read_bytes() == OLD
            assert names() == before
    assert child(arguments, None, killed=False) == 0
    assert not list(Path().glob(".part-*"))


@pytest.mark.parametrize("killed", [False, True])
def test_a_store_keeps_its_rows(
    killed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that were stored stay, and the same command goes on once there is room."""
    monkeypatch.chdir(tmp_path)
    store = Path("rows.db")

    def asked(points: str) -> tuple[str, ...]:
        vary = f"--vary=plan.microbatch={points}"
        return ("sweep", "gpt2-one-gpu", vary, "--jobs=1", f"--store={store}")

    assert child(asked("1"), None, killed=False) == 0
    first = _rows(store)
    size = store.stat().st_size
    for room in range(0, 3 * size, size // 4):
        code = child(asked("1,2,4"), room, killed=killed)
        assert code in (0, 2, -signal.SIGXFSZ)
        assert first <= _rows(store)
    assert child(asked("1,2,4"), None, killed=False) == 0
    assert len(_rows(store)) == 3


def _rows(store: Path) -> set[str]:
    with sqlite3.connect(store) as rows:
        assert rows.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return {key for (key,) in rows.execute("SELECT key FROM results")}
