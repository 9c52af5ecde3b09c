"""Read and write changes of a recipe on a command line, as for Hydra and NeMo-Run:
`model.num_layers=32`."""

import re
import shlex
from collections.abc import Mapping

from sim.interface.frameworks.command_line import words
from sim.interface.frameworks.documents import Words, flattened, parsed

_CHANGE = re.compile(r"^(?:\+{1,2}|~)?(\w+(?:\.\w+)+|mixed_precision)=(.*)$", re.S)
RECIPE = ("recipe", "factory", "model-recipe-name")  # options that name the recipe


def stated(text: str) -> Words:
    """Return the values of YAML, or of changes on a command line."""
    is_document = re.search(r"^\s*[\w.]+:(\s|$)", text, re.M)
    return flattened(parsed(text)) if is_document else assigned(text)


def assigned(text: str) -> Words:
    """Return the words of each dotted key and each option of a command line.

    Lists are in brackets; null removes a value. Raises `InputError` if quotes do not close.

    >>> assigned("run.py --recipe llama3_8b model.recompute_modules=[mlp,moe] +train.lr=1e-4")
    {'recipe': ('llama3_8b',), 'model.recompute_modules': ('mlp', 'moe'), 'train.lr': ('1e-4',)}
    """
    found: Words = {}
    option = ""
    for word in _words(text):
        if match := _CHANGE.match(word):
            found |= {match[1]: _values(match[2])}
            option = ""
        elif word.startswith("--"):
            option, equals, value = word[2:].replace("_", "-").partition("=")
            found[option] = (value,) if equals else ()
        elif option:
            found[option] = (*found[option], word)
    return {key: values for key, values in found.items() if values != ("null",)}


def _words(text: str) -> list[str]:
    """Return the words of a script's command, or of a text that has only changes."""
    alone = _CHANGE.match(text.lstrip()) and "\n" not in text.replace("\\\n", " ").strip()
    return words(f"--run {text}" if alone else text)[bool(alone) :]


def _values(text: str) -> tuple[str, ...]:
    inner = re.fullmatch(r"\[(.*)\]", text, re.S)
    values = inner[1].split(",") if inner else [text]
    plain = (value.strip().strip("\"'") for value in values)
    return tuple(value.lower() if value in ("True", "False", "None") else value for value in plain)


def written(arguments: Mapping[str, tuple[str, ...]]) -> str:
    """Return the changes, one on each line, as in an array of a shell script.

    >>> print(written({"model.num_layers": ("32",), "model.recompute_modules": ("mlp", "moe")}))
    model.num_layers=32
    'model.recompute_modules=[mlp,moe]'
    """
    lines = (
        shlex.quote(f"{key}={words[0] if len(words) == 1 else '[' + ','.join(words) + ']'}")
        for key, words in arguments.items()
    )
    return "\n".join(lines)
