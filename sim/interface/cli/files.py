"""The files that a command is asked to write: refused before any work where they cannot be."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from sim.config.errors import InputError
from sim.interface.plots import SUFFIXES as PICTURES


class OutputFile(click.Path):
    """A file that ends in one of some suffixes, or a folder where there are none."""

    def __init__(self, suffixes: Sequence[str]) -> None:
        super().__init__(path_type=Path)
        self.suffixes = suffixes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path. Raises `InputError` where no such file can be written there."""
        path = Path(value)
        where = f"{param.opts[0]} {path}" if param else str(path)
        if self.suffixes and path.suffix not in self.suffixes:
            endings = " or ".join(self.suffixes)
            raise InputError(where, "has an unknown ending", f"end it in {endings}")
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
    """An option for a file to write; its endings are named behind the help."""
    return click.option(flag, *aliases, **output_attributes(suffixes, help), **more)


def output_attributes(suffixes: Sequence[str], help: str) -> dict[str, Any]:
    """The attributes of an option that names a file to write."""
    *others, last = suffixes or ["a folder"]
    endings = f"{', '.join(others)} or {last}" if others else last
    return {"type": OutputFile(suffixes), "help": f"{help}: {endings}."}


PICTURE = output("--picture", PICTURES, "Draw it")
DOES_NOT_FIT = 3  # the exit code of a job that is too big for its GPUs
STOPPED = 130  # that of what Ctrl-C has stopped, as shells expect it


def show(answer: Any, *, as_json: bool, picture: Path | None = None) -> None:
    """Print an answer and draw it; the exit code says where a job does not fit."""
    if picture is not None:
        draw(answer, picture)
    click.echo(json.dumps(answer.to_dict()) if as_json else str(answer))
    if not getattr(answer, "fits", True):
        raise click.exceptions.Exit(DOES_NOT_FIT)


def draw(answer: Any, picture: Path) -> None:
    """Write an answer's figure."""
    from sim.interface.plots.picture import save

    save(answer.plot(), picture)
    wrote(picture)


def wrote(path: Path) -> None:
    """Say on standard error that a file is there."""
    click.echo(f"wrote {path}", err=True)
