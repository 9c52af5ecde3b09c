"""Results that were kept as JSON (`sim run --json > result.json`), read again."""

import json
from dataclasses import MISSING, fields
from math import nan
from pathlib import Path
from typing import Any

from sim.config import reads
from sim.config.errors import InputError
from sim.engine.timeline import Timeline
from sim.results.answer import SCHEMA, Inputs
from sim.results.outcome import Outcome
from sim.results.result import Result
from sim.sharing.update_record import CurvePoint

_REMEDY = "write it with `sim run SCENARIO --json > result.json`"


def read(path: Path) -> Result | Outcome:
    """The result in a file; it has no timeline. Raises `InputError`."""
    written = reads.text(path)
    try:
        found = json.loads(written)
    except (ValueError, RecursionError):
        raise InputError(str(path), "is no JSON", _REMEDY) from None
    document: dict[str, Any] = found if isinstance(found, dict) else {}
    if document.pop("schema", SCHEMA) != SCHEMA:
        raise InputError(str(path), "is a result of another version", _REMEDY)
    kind = Outcome if "curve" in document else Result
    usual = [f.name for f in fields(kind) if f.name != "timeline"]
    needed = {f.name for f in fields(kind) if f.default is f.default_factory is MISSING}
    missing = sorted(needed - {"timeline"} - document.keys())
    unknown = sorted(document.keys() - set(usual))
    if missing or unknown:
        what = f"lacks {missing[0]!r}" if missing else f"has an unknown key {unknown[0]!r}"
        raise InputError(str(path), f"is no result of this version: it {what}", _REMEDY)
    document["inputs"] = Inputs(**document["inputs"])
    if kind is Outcome:
        document["curve"] = tuple(map(_point, document["curve"]))
        document["loss"] = nan if document["diverged"] else document["loss"]
    return kind(**document, timeline=Timeline(roles=(), spans=(), end=0.0))


def _point(values: list[Any]) -> CurvePoint:
    """A point of the curve; a loss that JSON has no number for has diverged."""
    point = CurvePoint(*values)
    return point if point.loss is not None else point._replace(loss=nan)
