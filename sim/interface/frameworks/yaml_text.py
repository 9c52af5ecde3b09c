"""YAML as frameworks write it: values only, no code, and no more of them than a config can have."""

from collections import Counter
from typing import Any

import yaml

from sim.config.errors import InputError
from sim.config.gate import DEEP

_MOST = 100_000  # values; a whole ConfigContainer of Megatron-Bridge has some 700
_REMEDY = "correct that line"


def parsed(text: str, where: str = "the config") -> Any:
    """The values of a document; values behind an alias count once for each alias.

    Raises `InputError` for what is no YAML, has tags of Python objects, says a key twice, or is
    larger or deeper than a config can be.
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
    """A document as YAML, keys in their order."""
    return str(yaml.safe_dump(document, sort_keys=False)).rstrip()


def _refuse(root: yaml.Node, where: str) -> None:
    """Refuse more values or levels than a config has, and keys said twice. Raises `InputError`."""
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
