"""Arguments out of a command line or a launch script, and back."""

import re
import shlex
from collections.abc import Iterable, Mapping

from sim.config.errors import InputError

_ASSIGNED = re.compile(r"^\s*(?:export\s+|local\s+)?(\w+)=(?!\()(.*)$", re.M)
_USED = re.compile(r"\$\{(\w+)(?::?-([^}]*))?\}|\$(\w+)")
_ENDS = (";", "&", "&&", "|", "||")  # of a command
_DEEP = 20  # variables within variables


def parsed(text: str) -> dict[str, tuple[str, ...]]:
    """The words behind each `--argument` of a text, the last one where it is given twice.

    Variables of the script are put in; one that it never sets stays as it is, so that it is named
    where a number is needed. Raises `InputError` where quotes do not close.

    >>> parsed("TP=8; torchrun x.py --tensor-model-parallel-size ${TP} --bf16 --lr=1e-4")
    {'tensor-model-parallel-size': ('8',), 'bf16': (), 'lr': ('1e-4',)}
    """
    found: dict[str, list[str]] = {}
    for words in commands(text):
        _gather(words, found)
    return {name: tuple(values) for name, values in found.items()}


def commands(text: str) -> list[list[str]]:
    """The words of each line of a script, what it sets put in. Raises `InputError` where quotes do
    not close."""
    joined = text.replace("\\\n", " ")
    variables = _variables(joined)
    try:
        return [_words(line) for line in _expanded(joined, variables).splitlines()]
    except ValueError as error:
        raise InputError("arguments", str(error).lower(), "close the quotes") from None


def _gather(words: Iterable[str], found: dict[str, list[str]]) -> None:
    """Put the arguments of a line, each with the words behind it, to those found."""
    name = ""
    for word in words:
        if re.match(r"--[a-zA-Z]", word):
            name, equals, value = word[2:].partition("=")
            name = name.replace("_", "-")
            found[name] = [value] if equals else []
        elif name and word not in _ENDS:
            found[name].append(word)
        else:
            name = ""


def _words(text: str) -> list[str]:
    """Words as a shell has them, without comments; those in parentheses, of arrays, too."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|")
    lexer.whitespace_split, lexer.commenters = True, "#"
    words = (word if word.startswith("([") else word.strip("()") for word in lexer)
    return [word for word in words if word]


def _variables(text: str) -> dict[str, str]:
    """What a script sets; NAME=${NAME:-1} is 1 where the surroundings do not say otherwise."""
    found = {}
    for name, value in _ASSIGNED.findall(re.sub(r";\s", "\n", text)):
        own = re.sub(rf"\$\{{{name}:?-([^}}]*)\}}", r"\1", value.partition(" #")[0])
        found[name] = own.strip().strip("\"'")
    return found


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1] or match[3]
        return variables.get(name, match[2] if match[2] is not None else match[0])

    for _ in range(_DEEP):
        if (after := _USED.sub(value, text)) == text:
            break
        text = after
    return text


def written(arguments: Mapping[str, tuple[str, ...]]) -> str:
    """One argument a line, as a script has them.

    >>> print(written({"bf16": (), "seq-length": ("4096",)}))
    --bf16 \\
    --seq-length 4096
    """
    lines = (" ".join([f"--{name}", *map(shlex.quote, words)]) for name, words in arguments.items())
    return " \\\n".join(lines)
