"""Answers that `sim run --json` has written, read back."""

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from math import nan
from pathlib import Path
from types import UnionType
from typing import Any, get_args

from sim import questions
from sim.config import reads
from sim.config.errors import InputError
from sim.engine.timeline import Timeline
from sim.results.answer import SCHEMA, JobAnswer

_REMEDY = "write it with `sim run SCENARIO --json > result.json`"
_OF_ONE_RUN = {"events", "wall_seconds"}  # keys of every answer about a single run of a job
_COMPARED = "only single runs can be compared, as `sim run SCENARIO --json` writes them"


def stored(path: Path) -> JobAnswer:
    """Return the answer in a file; its timeline is empty. Raises `InputError`."""
    written = reads.text(path)
    try:
        found = json.loads(written)
    except (ValueError, RecursionError):
        raise InputError(str(path), "is no JSON", _REMEDY) from None
    document: dict[str, Any] = found if isinstance(found, dict) else {}
    if (version := document.pop("schema", None)) not in (None, SCHEMA):
        raise InputError(str(path), "is a result of another version", _REMEDY)
    if version and not document.keys() >= _OF_ONE_RUN:
        raise InputError(str(path), _held(document), _COMPARED)
    nearest = max(questions.answers(), key=lambda answer: len(_needed(answer) & document.keys()))
    missing = sorted(_needed(nearest) - document.keys())
    unknown = sorted(document.keys() - nearest.written().keys())
    if missing or unknown:
        fault = f"lacks {missing[0]!r}" if missing else f"has an unknown key {unknown[0]!r}"
        raise InputError(str(path), f"is no result of this version: it {fault}", _REMEDY)
    if document.get("diverged"):
        document["loss"] = nan  # for which JSON has no text
    document["timeline"] = Timeline(roles=(), spans=(), end=0.0)
    answer: JobAnswer = _made(nearest, document)
    return answer


def _held(document: Mapping[str, Any]) -> str:
    """Return what an answer holds that is no single run of a job.

    >>> _held({"scenario": "gpt2-one-gpu", "samples": 20})
    'holds several runs in one answer (--samples or --seeds)'
    """
    if {"scenario", "samples"} <= document.keys():
        return "holds several runs in one answer (--samples or --seeds)"
    return "answers another question than `sim run`"


def _needed(answer: type[JobAnswer]) -> set[str]:
    """Return the keys that a document must have to be an answer of this class."""
    needed = {key.name for key in fields(answer) if key.default is key.default_factory is MISSING}
    return needed - {"timeline"}


def _made(kind: Any, document: Mapping[str, Any]) -> Any:
    """Return the dataclass `kind` with the values of a document; derived keys are left out."""
    known = (field for field in fields(kind) if field.name in document)
    return kind(**{field.name: _value(field.type, document[field.name]) for field in known})


def _value(kind: Any, value: Any) -> Any:
    """Convert a value of JSON to the type `kind` of a field. JSON has null for a number that is not
    finite, such as the loss of a run that has diverged, and lists for tuples.

    >>> _value(tuple[float, ...], [0.5, None]), _value(float | None, None)
    ((0.5, nan), None)
    """
    if value is None:
        return nan if kind is float else None
    if is_dataclass(kind) and isinstance(value, Mapping):
        return _made(kind, value)
    if fields_of := getattr(kind, "__annotations__", None) if isinstance(value, list) else None:
        return kind(*map(_value, fields_of.values(), value))  # a named tuple
    if isinstance(kind, UnionType):
        (kind,) = (part for part in get_args(kind) if part is not type(None))
        return _value(kind, value)
    inner = [part for part in get_args(kind) if part is not ...]
    if isinstance(value, list):
        return tuple(_value(inner[0] if inner else Any, entry) for entry in value)
    if isinstance(value, Mapping) and inner:
        return {key: _value(inner[1], entry) for key, entry in value.items()}
    return value
