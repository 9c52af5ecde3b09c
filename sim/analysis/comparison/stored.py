"""Answers that were kept as JSON (`sim run --json > result.json`), read again."""

import json
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from sim import kind
from sim.config import reads
from sim.config.errors import InputError
from sim.results.answer import SCHEMA, JobAnswer

_REMEDY = "write it with `sim run SCENARIO --json > result.json`"


def read(path: Path) -> JobAnswer:
    """The answer in a file; it has no timeline. Raises `InputError`."""
    written = reads.text(path)
    try:
        found = json.loads(written)
    except (ValueError, RecursionError):
        raise InputError(str(path), "is no JSON", _REMEDY) from None
    document: dict[str, Any] = found if isinstance(found, dict) else {}
    if document.pop("schema", SCHEMA) != SCHEMA:
        raise InputError(str(path), "is a result of another version", _REMEDY)
    nearest = max(kind.answers(), key=lambda own: len(_needed(own) & document.keys()))
    known = {one.name for one in fields(nearest)} - {"timeline"}
    missing, unknown = sorted(_needed(nearest) - document.keys()), sorted(document.keys() - known)
    if missing or unknown:
        what = f"lacks {missing[0]!r}" if missing else f"has an unknown key {unknown[0]!r}"
        raise InputError(str(path), f"is no result of this version: it {what}", _REMEDY)
    return nearest.of_dict(document)


def _needed(answer: Any) -> set[str]:
    """The keys without which a document is no such answer."""
    needed = {one.name for one in fields(answer) if one.default is one.default_factory is MISSING}
    return needed - {"timeline"}
