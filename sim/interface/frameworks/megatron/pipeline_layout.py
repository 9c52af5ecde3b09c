"""The layers of each stage: `--pipeline-model-parallel-layout`, such as "Et*3|(tt|)*29,m|L".

E is the embedding, t a layer, m a layer of multi-token prediction, L the loss. A | separates
stages; with an interleaved schedule it separates chunks, in the order of the model
(megatron/core/transformer/pipeline_parallel_layer_layout.py, parse_str_to_list).
"""

import re
from itertools import groupby
from typing import Any

from sim.config.errors import InputError
from sim.interface.frameworks.arguments import Given, Keys, integer, value_of

ARGUMENT = "pipeline-model-parallel-layout"
_MOST = 100_000  # characters of a layout without repetitions
_TIMES = (re.compile(r"\(([^)]+)\)\*(\d+)"), re.compile(r"(.)\*(\d+)"))


def read(given: Given) -> dict[str, Any]:
    """Return the layers of each chunk, and the chunks of a stage. Raises `InputError`."""
    if ARGUMENT not in given:
        return {}
    text = value_of(given, ARGUMENT, str).replace(",", "")
    chunks, stages = unrolled(text).split("|"), integer(given, "pipeline-model-parallel-size", 1)
    row = "".join(chunks)
    if set(row) - set("EtmL") or row != "E" + "t" * row.count("t") + "m" * row.count("m") + "L":
        fault = f"{text!r:.60} is no row of E, t, m and L"
        raise InputError(f"argument {ARGUMENT}", fault, 'write it like "Ett|(tt|)*6ttL"')
    if len(chunks) % stages:
        fault = f"{len(chunks)} parts do not divide among {stages} stages"
        raise InputError(f"argument {ARGUMENT}", fault, "write as many for each")
    count = len(chunks) // stages
    keys: dict[str, Any] = {"plan.layers": [chunk.count("t") for chunk in chunks]}
    return keys | ({"plan.interleave": count, "plan.schedule": "interleaved"} if count > 1 else {})


def write(keys: Keys) -> dict[str, tuple[str, ...]]:
    """Write the layers of each stage; runs of equal stages are abbreviated.

    >>> write({"plan.layers": (1, 2, 2, 2, 1), "model.mtp": 0})
    {'pipeline-model-parallel-layout': ('Et|(tt|)*3tL',)}
    """
    layers = keys.get("plan.layers")
    if layers is None:
        return {}
    parts = ["t" * count for count in layers]
    parts[0] = f"E{parts[0]}"
    last = parts.pop() + "m" * keys.get("model.mtp", 0) + "L"
    runs = ((part, len(list(alike))) for part, alike in groupby(parts))
    text = "".join(
        f"({part}|)*{often}" if often > 2 else f"{part}|" * often for part, often in runs
    )
    return {ARGUMENT: (text + last,)}


def unrolled(text: str) -> str:
    """Write out the repetitions of a layout. Raises `InputError` if it is longer than a model."""
    written = 0

    def repeated(match: re.Match[str]) -> str:
        nonlocal written
        often = int(match[2]) if len(match[2]) < 7 else _MOST + 1
        written += often * len(match[1])
        if written > _MOST:
            fault = f"{text!r:.60} is longer than a model"
            raise InputError(f"argument {ARGUMENT}", fault, "write as many layers as there are")
        return match[1] * often

    for times in _TIMES:
        text = times.sub(repeated, text)
    return text
