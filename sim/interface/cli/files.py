"""The files that a command writes. A path that cannot be written is refused before any work."""

import json
import os
import re
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import click

from sim.config.dataclass import dataclass
from sim.config.errors import FitError, InputError
from sim.config.progress import waited
from sim.config.reads import recorded
from sim.interface.page import SUFFIXES as REPORTS
from sim.interface.plots import SUFFIXES as PICTURES
from sim.results.answer import Answer

_Command = Callable[..., None]


class OutputFile(click.Path):
    """A file whose name ends in any of `suffixes`, or a folder if `suffixes` is empty."""

    def __init__(self, suffixes: Sequence[str]) -> None:
        super().__init__(path_type=Path)
        self.suffixes = suffixes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path. Raises `InputError` if the file cannot be written."""
        path = Path(value)
        where = f"{param.opts[0]} {path}" if param else str(path)
        if self.suffixes and path.suffix not in self.suffixes:
            endings = " or ".join(self.suffixes)
            remedy = f"end it in {endings}"
            if self.suffixes is REPORTS and path.suffix in PICTURES:
                remedy = f"print the .html of a report, or draw a picture with --picture {path}"
            raise InputError(where, "has an unknown ending", remedy)
        if self.suffixes and path.is_dir():
            raise InputError(where, "is a folder", "name a file in it")
        if not path.parent.is_dir():
            raise InputError(where, f"no folder {str(path.parent)!r}", "make it or name another")
        if not os.access(path.parent, os.W_OK):
            remedy = "name one that you may write to"
            raise InputError(where, f"folder {str(path.parent)!r} is read-only", remedy)
        return path


def output(
    flag: str, suffixes: Sequence[str], help: str, *aliases: str, **more: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return an option for a file to write; its help text ends with the allowed suffixes."""
    return click.option(flag, *aliases, **output_attributes(suffixes, help), **more)


def output_attributes(suffixes: Sequence[str], help: str) -> dict[str, Any]:
    """Return the type and the help text of an option that names a file to write."""
    *others, last = suffixes or ["a folder"]
    endings = f"{', '.join(others)} or {last}" if others else last
    return {"type": OutputFile(suffixes), "help": f"{help}: {endings}."}


DOES_NOT_FIT = 3  # the exit code for a job that is too big for its GPUs
MAY_NOT_FIT = 5  # the exit code for a job that may or may not fit
STOPPED = 130  # the exit code after Ctrl-C, as shells expect it


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The forms of an answer that the user asked for: text or JSON, a picture, a report."""

    as_json: bool
    picture: Path | None
    report: Path | None
    width: float | None = None

    @property
    def asked(self) -> bool:
        """Whether any form other than text is asked for."""
        return self.as_json or self.picture is not None or self.report is not None

    def write(self, answer: Answer) -> None:
        """Write the picture and the report, if they are asked for."""
        from sim.interface.page import report
        from sim.interface.plots import picture

        if self.picture is not None:
            picture.save(answer.plot(), self.picture, self.width)
            wrote(self.picture)
        if self.report is not None:
            waited(f"writing {self.report}")(report.write)(answer, self.report)
            wrote(self.report)

    def show(self, answer: Answer) -> None:
        """Write the files and print the answer; exit with 3 or 5 if the job does not, or may not,
        fit. If a view fails, which is our fault, the answer is still printed as JSON."""
        try:
            if self.picture or self.report:
                self.write(answer)
            printed = json.dumps(answer.to_dict()) if self.as_json else str(answer)
        except (InputError, OSError):
            raise
        except Exception:
            click.echo(json.dumps(answer.to_dict()))
            raise
        click.echo(printed)
        fits = getattr(answer, "fits", True)
        if not fits:
            raise click.exceptions.Exit(MAY_NOT_FIT if fits is None else DOES_NOT_FIT)


def answers(draws: str = "Draw it", *aliases: str) -> Callable[[_Command], _Command]:
    """Add --picture, --width, --report and --json to a command, which gets them as `form`."""
    options = (
        output("--picture", PICTURES, draws, *aliases),
        click.option("--width", callback=_inches, help='Width of the picture: "3.4in", "86mm".'),
        output("--report", REPORTS, "Write a page (.html), a document, a table or numbers"),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
    )

    def decorated(command: _Command) -> _Command:
        @wraps(command)
        @recorded()  # a report shows what was read
        def asked(**given: Any) -> None:
            form = Form(
                **{key: given.pop(key) for key in ("as_json", "picture", "report", "width")}
            )
            drawn = [path for path in (form.picture, *given.values()) if isinstance(path, Path)]
            if form.width is not None and not any(path.suffix in PICTURES for path in drawn):
                raise InputError("--width", "there is no picture", "add --picture FILE.png")
            try:
                command(form=form, **given)
            except FitError as error:
                if form.as_json:
                    click.echo(json.dumps({"fits": False, "reason": str(error)}))
                raise

        for option in reversed(options):
            asked = option(asked)
        return asked

    return decorated


_INCHES = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4, "pt": 1 / 72.0}


def _inches(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Return the inches of a width such as "86mm". Raises `InputError`."""
    if value is None:
        return None
    found = re.fullmatch(r"([\d.]+) ?(in|cm|mm|pt)", value.strip())
    width = float(found[1]) * _INCHES[found[2]] if found and found[1].count(".") < 2 else 0.0
    if not 1.0 <= width <= 50.0:
        raise InputError("--width", f"{value!r} is no width of 1 to 50 inches", 'write "3.4in"')
    return width


def wrote(path: Path) -> None:
    """Print on standard error that a file was written."""
    click.echo(f"wrote {path}", err=True)
