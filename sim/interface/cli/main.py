"""The command `sim`. Answers go to standard output, progress and complaints to standard error."""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from itertools import chain
from typing import IO, Any

import click

from sim.config.errors import FitError, InputError
from sim.config.stopping import kept
from sim.interface.cli.files import DOES_NOT_FIT, STOPPED
from sim.interface.cli.options import examples

_LONG, _SHOWN = 500, 60  # a word longer than _LONG characters is cut to its first _SHOWN


class _Mistake(click.ClickException):
    """A mistake that the user can correct: one line on standard error, exit code 2."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        line = " ".join(map(_quoted, self.format_message().split()))
        click.echo(f"error: {_printable(line)}", file=file, err=True)


class _TooBig(_Mistake):
    """A job that does not fit into memory: exit code 3."""

    exit_code = DOES_NOT_FIT


class _Stopped(click.ClickException):
    """Ctrl-C: one line on standard error, exit code 130."""

    exit_code = STOPPED

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(self.format_message(), file=file, err=True)


def _quoted(word: str) -> str:
    return word if len(word) <= _LONG else f"{word[:_SHOWN]}...{word[-2:]}"


def _printable(text: str) -> str:
    """Escape characters that a terminal would take for a command or that cannot be encoded."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


@contextmanager
def _mistakes() -> Iterator[None]:
    try:
        yield
    except InputError as error:
        kind = _TooBig if isinstance(error, FitError) else _Mistake
        raise kind(str(error)) from None
    except KeyboardInterrupt:
        raise _Stopped("stopped before there was a result; files that were written stay") from None
    except RecursionError:
        raise _Mistake("sim: tables are nested too deep; write them flatter") from None
    except click.exceptions.NoArgsIsHelpError:
        raise
    except click.UsageError as error:
        raise _Mistake(_usage(error)) from None
    except BrokenPipeError:  # nobody reads on, which is no mistake
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise click.exceptions.Exit(0) from None
    except OSError as error:
        fault = f"cannot be read or written ({error.strerror})"
        where = error.filename or "standard output"
        raise _Mistake(f"{where}: {fault}; check the disk and the path") from None


def _usage(error: click.UsageError) -> str:
    """Return a message for a command line that click cannot read: place, fault and remedy."""
    command = error.ctx.command_path if error.ctx else "sim"
    message = error.format_message()
    fault = re.split(r"[.\s]*\(?(?:Did you mean|Possible options)", message)[0].rstrip(".")
    given = getattr(error, "option_name", None) or getattr(error, "command_name", None)
    near = get_close_matches(given or "", getattr(error, "possibilities", None) or (), 1, 0.0)
    remedy = f"did you mean {near[0]!r}?" if near else f"see `{command} --help`"
    if f"--{given}" in chain.from_iterable(param.opts for param in main.commands["run"].params):
        remedy = f"it is an option: sim run SCENARIO --{given} ..."
    if re.match(r"-\d", getattr(error, "option_name", "")):
        fault = f"{error.option_name!r} is read as an option"  # type: ignore[attr-defined]
        remedy = "no number here is negative; put -- before a text that begins with -"
    return f"{command}: {fault[0].lower()}{fault[1:]}; {remedy}"


class _Group(click.Group):
    """A group whose commands report mistakes in one line."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run click's `main`. Memory may also run out while a mistake is printed, so
        `MemoryError` is caught here."""
        try:
            return super().main(*args, **kwargs)
        except MemoryError:
            sys.stderr.write("error: sim: this needs more memory than there is; ask for less\n")
            sys.exit(_Mistake.exit_code)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a line for each command, in sections by purpose."""
        room = formatter.width - 6 - max(map(len, self.commands))
        for title, names in _COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl([(n, self.commands[n].get_short_help_str(room)) for n in names])

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _mistakes():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with _mistakes(), kept() as command:
            try:
                answer = super().invoke(ctx)
            except click.exceptions.Exit:  # a stopped answer may not know whether jobs fit
                if not command.stopped:
                    raise
            if command.stopped:
                click.echo("stopped: these are the results so far", err=True)
                raise click.exceptions.Exit(STOPPED)
            return answer


_COMMANDS = {
    "Ask about a job": (
        *("run", "explain", "compare", "network", "plan", "sweep", "goodput", "cost", "workers"),
        *("serve", "diff"),
    ),
    "See what there is": ("list", "show", "collective"),
    "Begin with your own": ("init", "import", "capture"),
    "Compare with reality": ("validate", "measure", "calibrate", "replay"),
}
_NAMES = tuple(chain.from_iterable(_COMMANDS.values()))


def _word(name: str) -> str:
    """Return the name of a command's module and function."""
    return f"{name}_" if name in ("import", "list") else name  # reserved or built-in in Python


class _Commands(Mapping[str, click.Command]):
    """The commands by name; a command's module is imported when the command is looked up."""

    def __getitem__(self, name: str) -> click.Command:
        if name not in _NAMES:
            raise KeyError(name)
        module = import_module("sim.interface.cli." + _word(name))
        found: click.Command = getattr(module, _word(name))
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(_NAMES)

    def __len__(self) -> int:
        return len(_NAMES)


@click.group(
    cls=_Group,
    commands=_Commands(),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=examples("sim run gpt3-175b-megatron", "sim run --help"),
)
@click.version_option(package_name="clustersim")
def main() -> None:
    """Predict how a training job runs on a cluster before anyone pays for the cluster."""
