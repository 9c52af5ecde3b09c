"""A case: files and a command line, called in this process; what a user must never see."""

import base64
import contextlib
import gc
import io
import os
import re
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from sim.config import limit
from sim.interface.cli.files import DOES_NOT_FIT, MAY_NOT_FIT
from sim.interface.cli.main import main

ALLOWED = 15.0  # s; what would take longer says so before it starts
TRACEBACK = 70  # the exit code of what ends with one
# A scenario may be called so: "sim run nan"; and a config may hold it where nobody reads it.
_NUMBER_THAT_IS_NONE = re.compile(
    r"(?<![\w.\-/])(?<!^sim run )[-+]?(?:nan|NaN|inf|Infinity)(?![\w-]| is not modelled)", re.M
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A command line in a folder with these files."""

    kind: ClassVar[str] = "cases"

    arguments: tuple[str, ...]
    files: dict[str, bytes]

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        files = {name: base64.b85encode(data).decode() for name, data in self.files.items()}
        return {"arguments": self.arguments, "files": files}

    @classmethod
    def of(cls, content: dict[str, Any]) -> "Case":
        """The case that `to_dict` has written."""
        files = {name: base64.b85decode(data) for name, data in content["files"].items()}
        return cls(arguments=tuple(content["arguments"]), files=files)

    def violation(self) -> str:
        """What a user must never see, empty where all is well."""
        for name, data in self.files.items():
            path = Path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return called(self.arguments).violation


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a command ended."""

    code: int
    output: str
    complaint: str

    @property
    def violation(self) -> str:
        """What a user must never see, empty where all is well: anything but an answer in finite
        numbers (0; 3 where it does not fit, 5 where nobody knows), or one line: where, what and
        what to do (2)."""
        if self.code in (0, DOES_NOT_FIT, MAY_NOT_FIT):
            bad = _NUMBER_THAT_IS_NONE.search(self.output)
            return f"answers with {bad[0]}" if bad else ""
        if self.code == 2:
            lines = self.complaint.splitlines()
            good = len([line for line in lines if not line.startswith("warning: ")]) == 1
            return "" if good and lines[-1].startswith("error: ") else "is not one line"
        lines = self.complaint.strip().splitlines() or ["?"]
        return f"ends with code {self.code}: {lines[-1][:200]}"


def called(arguments: tuple[str, ...]) -> Outcome:
    """The command as the console script runs it, in the folder where this process is."""
    code, output, complaint = TRACEBACK, io.StringIO(), io.StringIO()
    limit.allow(ALLOWED)
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(complaint):
        try:
            main.main(list(arguments), prog_name="sim")
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        except BaseException:
            traceback.print_exc()
    left = _left_behind()
    limit.allow(limit.USUAL)
    if left:
        code, complaint = TRACEBACK, io.StringIO(left)
    return Outcome(code=code, output=output.getvalue(), complaint=complaint.getvalue())


def _left_behind() -> str:
    """What a command has changed for the next one in the same process."""
    if limit.allowed() != ALLOWED:
        return f"leaves a limit of {limit.allowed()} s behind"
    return "" if gc.isenabled() else "leaves the garbage collector off"


@contextlib.contextmanager
def own_folder() -> Iterator[None]:
    """An empty folder to be in."""
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(here)
