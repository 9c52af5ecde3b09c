"""Arguments out of nested documents (TOML, JSON, YAML), and back."""

from collections.abc import Iterator, Mapping
from typing import Any

from sim.config.errors import InputError

Words = dict[str, tuple[str, ...]]


def flattened(document: Any) -> Words:
    """The values of a document by their dotted keys, as words; tables in a list by their number.

    >>> flattened({"training": {"seq_len": 8192, "compile": True}, "names": ["a", "b"]})
    {'training.seq_len': ('8192',), 'training.compile': ('true',), 'names': ('a', 'b')}
    >>> flattened({"callbacks": [{"gc": True}, {"overlap": False}]})
    {'callbacks.0.gc': ('true',), 'callbacks.1.overlap': ('false',)}
    """
    if not isinstance(document, Mapping):
        raise InputError("the document", "is no table of settings", "give a whole job's")
    return dict(_flat(document, ""))


def _flat(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name}.")
        elif isinstance(value, list) and any(isinstance(one, Mapping | list) for one in value):
            yield from _flat({str(number): one for number, one in enumerate(value)}, f"{name}.")
        elif value is not None:
            values = value if isinstance(value, list | tuple) else [value]
            yield name, tuple(map(_word, values))


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def nested(words: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Words as a document again: numbers and truth values as such, several as a list."""
    return tables({key: _value(word) for key, word in words.items()})


def _value(words: tuple[str, ...]) -> Any:
    values = [_typed(word) for word in words]
    return values[0] if len(values) == 1 else values


def _typed(word: str) -> Any:
    if word in ("true", "false"):
        return word == "true"
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def tables(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as tables.

    >>> tables({"plan.tp": 2, "plan.pp": 4})
    {'plan': {'tp': 2, 'pp': 4}}
    """
    document: dict[str, Any] = {}
    for key, value in keys.items():
        *path, last = key.split(".")
        table = document
        for step in path:
            table = table.setdefault(step, {})
        table[last] = value
    return document
