"""Read arguments from a command line or a launch script, and write them."""

import re
import shlex
from collections.abc import Mapping

from sim.config.errors import InputError
from sim.interface.frameworks import shell
from sim.interface.frameworks.shell import Command

# A program that trains, or a launcher that starts it on many ranks.
_PROGRAM = re.compile(r".*\.py|(.*/)?(python[\d.]*|torchrun|deepspeed|accelerate|srun|mpirun)")
_SAYS = re.compile(r"--[a-zA-Z]|(\+{1,2}|~)?\w+(\.\w+)+=")  # an argument, a change of a recipe
# Variables whose names suggest that they hold arguments.
_ARGUMENTS = re.compile(r"\$\{?\w*(arg|opt|flag|extra|param|override)", re.I)


def parsed(text: str) -> dict[str, tuple[str, ...]]:
    """Return the words that follow each `--argument` of a text. If an argument is repeated, its
    last occurrence counts.

    Variables of the script are replaced by their values. A variable that the script never sets
    keeps its name, so a message can name it if a number is needed. Raises `InputError` if the
    script cannot be evaluated (`shell.commands`).

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
    """Return the words of a text that holds only arguments. For a script, return the words of the
    command that starts a program.

    Raises `InputError` if quotes do not close, the script is not valid, or it starts several
    different programs.
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
        raise InputError("script", fault, "name the line of one with --line")
    return [*found[0].words] if found else []


def at_line(text: str, line: int) -> str:
    """Return the command that begins in this line of a script. Raises `InputError` if none does."""
    found = _programs(text)
    for program in found:
        if program.line == line:
            return shlex.join(program.words)
    lines = ", ".join(str(program.line) for program in found) or "none"
    raise InputError("--line", f"no program starts in line {line}", f"programs start in {lines}")


def _programs(text: str) -> list[Command]:
    """Return the commands with arguments. If training programs or launchers are among them, return
    only these programs."""
    given = [command for command in shell.commands(text) if any(map(_says, command.words))]
    return [command for command in given if any(map(_PROGRAM.fullmatch, command.words))] or given


def _says(word: str) -> bool:
    """Whether a word is an argument, or an unknown variable that may hold arguments."""
    return bool(_SAYS.match(word) or (shell.unsure(word) and _ARGUMENTS.match(word)))


def _refuse_arguments(word: str, has_value: bool) -> None:
    """Raise `InputError` for an unknown value that may hold arguments."""
    if shell.unsure(word) and word[0] in "$`" and (has_value or _ARGUMENTS.match(word)):
        raise InputError("script", f"{word} is not known", "write what it stands for")


def written(arguments: Mapping[str, tuple[str, ...]]) -> str:
    """Return the arguments, one on each line, as in an array of a shell script.

    >>> print(written({"bf16": (), "seq-length": ("4096",)}))
    --bf16
    --seq-length 4096
    """
    lines = (" ".join([f"--{name}", *map(shlex.quote, words)]) for name, words in arguments.items())
    return "\n".join(lines)
