"""Read arguments from nested documents (TOML, JSON, YAML), and write them."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from sim.config.errors import InputError
from sim.config.gate import DEEP
from sim.scenario.settings import changed

Words = dict[str, tuple[str, ...]]

_MOST = 100_000  # values; a whole ConfigContainer of Megatron-Bridge has about 700
_REMEDY = "correct that line"


def flattened(document: Any) -> Words:
    """Return the values of a document as words, by dotted keys. Tables in a list have their number
    as a key.

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
        elif isinstance(value, list) and any(isinstance(entry, Mapping | list) for entry in value):
            yield from _flat({str(number): entry for number, entry in enumerate(value)}, f"{name}.")
        elif value is not None:
            values = value if isinstance(value, list | tuple) else [value]
            yield name, tuple(map(word, values))


def word(value: Any) -> str:
    """Return a value as a word; booleans in small letters."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def nested(words: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Return words as a document: numbers and booleans are typed, several words become a list."""
    return changed({}, {key: _value(values) for key, values in words.items()}, "the document")


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


def parsed(text: str, where: str = "the config") -> Any:
    """Read a YAML document. Where an alias is used, its values count again towards the limits.

    Raises `InputError` if the text is not YAML, or exceeds the size or depth of a config. Tags of
    Python objects and repeated keys are refused, too.
    """
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is None:
            return None
        _refuse(node, where)
        return yaml.SafeLoader("").construct_document(node)
    except RecursionError:
        raise InputError(where, f"is nested more than {DEEP} deep", "write it flatter") from None
    except (yaml.YAMLError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        reason = " ".join(str(error).split())
        raise InputError(where, f"is not valid YAML: {reason:.160}", _REMEDY) from None


def written(document: Any) -> str:
    """Return a document as YAML, with its keys in their order."""
    return str(yaml.safe_dump(document, sort_keys=False)).rstrip()


def _refuse(root: yaml.Node, where: str) -> None:
    """Raise `InputError` for more values or levels than a config has, and for repeated keys."""
    level, seen = [root], 0
    for _ in range(DEEP + 1):
        seen += len(level)
        inner: list[yaml.Node] = []
        for node in level:
            if isinstance(node, yaml.MappingNode):
                _refuse_twice(node, where)
                inner += [value for _, value in node.value]
            elif isinstance(node, yaml.SequenceNode):
                inner += node.value
            if seen + len(inner) > _MOST:
                raise InputError(where, f"has more than {_MOST:,} values", "take what is needed")
        if not inner:
            return
        level = inner
    raise InputError(where, f"is nested more than {DEEP} deep", "write it flatter")


def _refuse_twice(node: yaml.MappingNode, where: str) -> None:
    names = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
    if names and (most := names.most_common(1)[0])[1] > 1:
        raise InputError(where, f"has {most[0]!r} twice", "keep one")
