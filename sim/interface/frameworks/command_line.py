"""Arguments out of a command line or a launch script, and back."""

import re
import shlex
from collections.abc import Mapping

from sim.config.errors import InputError
from sim.interface.frameworks import shell
from sim.interface.frameworks.shell import Command

# A program that trains: by itself, or behind what starts it on many ranks.
_PROGRAM = re.compile(r".*\.py|(.*/)?(python[\d.]*|torchrun|deepspeed|accelerate|srun|mpirun)")
_SAYS = re.compile(r"--[a-zA-Z]|(\+{1,2}|~)?\w+(\.\w+)+=")  # an argument, a change of a recipe
# Variables that hold arguments, wherever they stand.
_ARGUMENTS = re.compile(r"\$\{?\w*(arg|opt|flag|extra|param|override)", re.I)


def parsed(text: str) -> dict[str, tuple[str, ...]]:
    """The words behind each `--argument` of a text, the last one where it is given twice.

    Variables of the script are put in; one that it never sets stays as it is, so that it is named
    where a number is needed. Raises `InputError` for what cannot be evaluated (`shell.commands`).

    >>> parsed("TP=8; torchrun x.py --tensor-model-parallel-size ${TP} --bf16 --lr=1e-4")
    {'tensor-model-parallel-size': ('8',), 'bf16': (), 'lr': ('1e-4',)}
    """
    found: dict[str, list[str]] = {}
    name = ""
    for word in words(text):
        if re.match(r"--[a-zA-Z]", word):
            name, equals, value = word[2:].partition("=")
            name = name.replace("_", "-")
            found[name] = [value] if equals else []
        elif name:
            _refuse_arguments(word, bool(found[name]))
            found[name].append(word)
        else:
            _refuse_arguments(word, False)
    return {name: tuple(values) for name, values in found.items()}


def words(text: str) -> list[str]:
    """The words of arguments alone, or of the command of a script that starts a program.

    Raises `InputError` where quotes do not close, a script is none, or starts several.
    """
    if text.lstrip().startswith("-"):
        try:
            return shlex.split(text.replace("\\\n", " "), comments=True)
        except ValueError as error:
            raise InputError("arguments", str(error).lower(), "close the quotes") from None
    found = _programs(text)
    if len({command.words for command in found}) > 1:
        lines = " and ".join(str(command.line) for command in found[:2])
        fault = f"lines {lines} both start a program"
        raise InputError("script", fault, "--line says which of them")
    return [*found[0].words] if found else []


def at_line(text: str, line: int) -> str:
    """The command of a script that begins in a line, alone. Raises `InputError` for none."""
    found = _programs(text)
    for own in found:
        if own.line == line:
            return shlex.join(own.words)
    lines = ", ".join(str(own.line) for own in found) or "none"
    raise InputError("--line", f"no program starts in line {line}", f"programs start in {lines}")


def _programs(text: str) -> list[Command]:
    """The commands that have arguments; of these such as train, if any do."""
    given = [command for command in shell.commands(text) if any(map(_says, command.words))]
    return [command for command in given if any(map(_PROGRAM.fullmatch, command.words))] or given


def _says(word: str) -> bool:
    """Whether a word is an argument, or may hold some."""
    return bool(_SAYS.match(word) or (shell.unsure(word) and _ARGUMENTS.match(word)))


def _refuse_arguments(word: str, has_value: bool) -> None:
    """Refuse a value that nobody knows where it may be arguments. Raises `InputError`."""
    if shell.unsure(word) and word[0] in "$`" and (has_value or _ARGUMENTS.match(word)):
        raise InputError("script", f"{word} is not known", "write what it stands for")


def written(arguments: Mapping[str, tuple[str, ...]]) -> str:
    """One argument a line, as an array of a script has them.

    >>> print(written({"bf16": (), "seq-length": ("4096",)}))
    --bf16
    --seq-length 4096
    """
    lines = (" ".join([f"--{name}", *map(shlex.quote, words)]) for name, words in arguments.items())
    return "\n".join(lines)
