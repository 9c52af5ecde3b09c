"""The JSON schemas of answers, generated from their types: `python -m docs.schema`.

A file of `docs/schema` for each command that prints an answer with `--json`. An unknown key of an
answer is an error of the schema: one that is added is published by running this again.
"""

import json
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import pandas

from sim.results.answer import SCHEMA, Answer

FOLDER = Path(__file__).parent / "schema"
ANSWERS = {
    "run": "sim.results.result:Result",
    "run-sharing": "sim.jobs.sharing.outcome:Outcome",
    "run-samples": "sim.analysis.samples.answer:Samples",
    "run-sharing-samples": "sim.analysis.samples.seeds:Seeds",
    "plan": "sim.analysis.search.answer:SearchResult",
    "plan-recording": "sim.analysis.explanation.moves:Moves",
    "sweep": "sim.analysis.sweeps.answer:Sweep",
    "explain": "sim.analysis.explanation.explain:Explanation",
    "goodput": "sim.analysis.reliability.goodput:Goodput",
    "budget": "sim.analysis.reliability.budget:Budget",
    "cost": "sim.analysis.reliability.cost:TrainingCost",
    "compare": "sim.analysis.comparison.steps:StepComparison",
    "network": "sim.analysis.networks.networks:Networks",
    "diff": "sim.analysis.comparison.lines:LineDifferences",
    "compare-figures": "sim.analysis.comparison.figures:FigureComparison",
    "compare-sharing": "sim.analysis.comparison.sharing:SharingComparison",
    "workers": "sim.jobs.sharing.worker_counts:WorkerCounts",
    "collective": "sim.analysis.collectives.times:CollectiveTimes",
    "replay": "sim.jobs.traces.replay:Replay",
    "run-generation": "sim.jobs.generation.answer:Generated",
    "run-jobs": "sim.jobs.multi_job.answer:MultiJobAnswer",
    "run-reinforcement": "sim.jobs.reinforcement.answer:ReinforcementAnswer",
    "measure": "sim.analysis.calibration.training.comparison:JobComparison",
    "validate": "sim.analysis.validation.answer:Validation",
    "validate-figures": "sim.analysis.validation.figures:FigureValidation",
    "validate-parts": "sim.analysis.validation.parts:PartValidation",
}


def schema(name: str) -> dict[str, Any]:
    """The JSON schema of what `sim NAME --json` prints."""
    kind = answer(name)
    properties: dict[str, Any] = {}
    definitions: dict[str, Any] = {}
    for key, own in types(kind).items():
        found = _of_type(own)
        definitions |= found.pop("$defs", {})
        properties[key] = _with_absent_numbers(found)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"sim {name.partition('-')[0]} --json",
        "description": " ".join((kind.__doc__ or "").split()),
        "type": "object",
        "properties": {"schema": {"const": SCHEMA}, **properties},
        "required": ["schema", *properties],
        "additionalProperties": False,
        "$defs": _with_absent_numbers(definitions),
    }


def answer(name: str) -> type[Answer]:
    """The class of a command's answers."""
    module, _, own = ANSWERS[name].partition(":")
    kind: type[Answer] = getattr(import_module(module), own)
    return kind


def types(kind: type[Answer]) -> dict[str, Any]:
    """The keys of an answer with their types."""
    known = {"pd": pandas, "LinkLoad": Any, "MemoryCurve": Any}  # for the type checker alone
    hints = get_type_hints(kind, localns=known)
    own = kind.written()
    for name in own.values() - hints.keys():
        hints[name] = get_type_hints(getattr(kind, name).fget, localns=known)["return"]
    return {key: hints[name] for key, name in own.items()}


def _of_type(kind: Any) -> dict[str, Any]:
    """The schema of a field; a table where an answer stands within another."""
    from pydantic import TypeAdapter

    if isinstance(kind, type) and issubclass(kind, Answer):
        inner = {key: _of_type(own) for key, own in types(kind).items()}
        definitions: dict[str, Any] = {}
        for one in inner.values():
            definitions |= one.pop("$defs", {})
        return {"type": "object", "properties": inner, "required": list(inner),
                "additionalProperties": False, "$defs": definitions}  # fmt: skip
    return TypeAdapter(kind).json_schema(mode="serialization")


def _with_absent_numbers(found: Any) -> Any:
    """JSON has no infinity: such numbers are null. What a field is otherwise is no default here."""
    if isinstance(found, list):
        return [_with_absent_numbers(one) for one in found]
    if not isinstance(found, dict):
        return found
    inner = {key: _with_absent_numbers(own) for key, own in found.items() if key != "default"}
    return inner | {"type": ["number", "null"]} if found.get("type") == "number" else inner


def text(name: str) -> str:
    """The file of a schema."""
    return json.dumps(schema(name), indent=1) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in ANSWERS:
        (FOLDER / f"{name}.json").write_text(text(name), encoding="utf-8")
