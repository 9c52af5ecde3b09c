"""The errors of values that a schema refuses, in one line each."""

import re
from typing import Any

from sim.config import gate
from sim.config.errors import InputError
from sim.config.near import nearest


class UnsuitedError(InputError):
    """A value that a table refuses, alone or beside its other values."""


def refusal(error: ValueError, where: str, key: str = "") -> InputError:
    """Return the error for a fault that the code of a dataclass raises as "what; what to do"."""
    what, _, remedy = str(error).partition("; ")
    misspelt = remedy.startswith(("did you mean", "known:"))  # as `nearest` answers
    kind = InputError if key or misspelt else UnsuitedError
    return kind(where, f"{key}: {what}" if key else what, remedy or "correct it there")


# Names of a union's members that pydantic adds to the place of a fault; they are no keys of files.
_OF_UNION = re.compile(r"bool|int|float|str|constrained-\w+|[a-z-]+\[.*\]|[A-Z]\w*")

# Pydantic's names of faults for values of the wrong shape.
_SHAPES = (
    (("string_type",), "a text", '"..."'),
    (("is_instance_of", "dict_type", "mapping_type"), "a table", "{ ... }"),
    (("tuple_type", "list_type"), "a list", "[...]"),
)


def first_fault(error: Any, where: str, *outer: str) -> InputError:
    fault, otherwise = _nearest_member(error.errors())
    inner = (str(step) for step in fault["loc"])
    steps = [*outer, *(step for step in inner if not _OF_UNION.fullmatch(step))]
    place = ", ".join([where, ".".join(steps[:-1])] if len(steps) > 1 else [where])
    key = steps[-1] if steps else ""
    if fault["type"] == "value_error":
        return refusal(fault["ctx"]["error"], place, key)
    shown = gate.shown(fault["input"])
    for types, noun, sample in _SHAPES:
        if fault["type"] in types:
            return InputError(place, f"{key} = {shown} is not {noun}", f"write {key} = {sample}")
    text = f"{key} = {shown}: {fault['msg'][0].lower()}{fault['msg'][1:]}"
    return InputError(place, text, "".join((_remedy(fault, key), *otherwise)).replace("?,", "?"))


def _nearest_member(faults: list[Any]) -> tuple[Any, list[str]]:
    """A fault, and remedies that other members of a union allow. If no member accepts a value, this
    is the fault of the likeliest member: words for a text, a number for a number."""
    first = faults[0]
    if not (first["loc"] and _OF_UNION.fullmatch(str(first["loc"][-1]))):
        return first, []
    members = [fault for fault in faults if fault["loc"][:-1] == first["loc"][:-1]]
    is_text = isinstance(first["input"], str)
    members.sort(key=lambda fault: (fault["type"] == "literal_error") != is_text)
    words = [
        _ALLOWED.get(str(fault["loc"][-1]), fault.get("ctx", {}).get("expected", ""))
        for fault in members[1:]
    ]
    return members[0], [f", or write {word}" for word in words if word]


_ALLOWED = {
    "int": "a whole number",
    "constrained-int": "a whole number",
    "float": "a number",
    "constrained-float": "a number",
}


def _remedy(fault: Any, key: str) -> str:
    context = fault.get("ctx", {})
    if fault["type"] == "literal_error":
        texts = re.findall(r"'([^']*)'", context["expected"])
        return nearest(str(fault["input"]), texts or re.findall(r"\d+", context["expected"]))
    for name, words in (("ge", "at least"), ("gt", "above"), ("le", "at most"), ("lt", "below")):
        if name in context:
            return f"set {key} {words} {context[name]}"
    return f"mend {key}"
