"""Writes what mechanisms are worth and how far repeats are apart into docs/fidelity.md.

    python -m docs.fidelity ABLATION.json [...]

The files are what `sim validate [TABLE...] --ablation --json` printed, for all tables together or
for some each; all that they say goes to docs/validation/ablation.md.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sim.analysis.validation.ablation import mechanisms

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "fidelity.md"
FULL = ROOT / "docs" / "validation" / "ablation.md"
MARKED = re.compile(r"(?<=<!-- ablation -->\n).*?(?=<!-- /ablation -->)", re.S)
CLEAR = 0.0005  # of MAPE: less is no change
_MEANS = {"mean MAPE": "mape", "bias": "bias", "memory": "memory_median"}
HEAD = """\
# What each mechanism is worth, table by table

Printed by `sim validate [TABLE...] --ablation --at-most N`: errors of the same rows with all, and
*then* without one mechanism of `measurements/mechanisms.toml`. *moved*: rows whose step time or
memory changes, of those that can be simulated both ways. *memory* is its median error.

"""


def summary(found: Sequence[Mapping[str, Any]]) -> str:
    """A line a mechanism: the means of tables that move, where it helps and harms most."""
    heads = [head for mean in _MEANS for head in (mean, "then")]
    lines = [
        ["without", "tables", *heads, "worth most on", "harms most"],
        ["---", "---:", *["---:"] * len(heads), "---", "---"],
    ]
    for name in dict.fromkeys(one["mechanism"] for one in found):
        own = [one for one in found if one["mechanism"] == name]
        ranked = sorted((one for one in own if one["mape"] is not None), key=_worth)
        most = _named([one for one in reversed(ranked) if _worth(one) > CLEAR])
        least = _named([one for one in ranked if _worth(one) < -CLEAR])
        lines.append([name, str(len(own)), *_means(own), most, least])
    return _table(lines)


def _means(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Of each figure the mean over tables that have it, with the mechanism and without."""
    for figure in _MEANS.values():
        for key in (figure, f"{figure}_without"):
            values = [one[key] for one in found if one[figure] is not None]
            yield f"{np.mean(values):{'+' * (figure == 'bias')}.1%}" if values else ""


def _worth(one: Mapping[str, Any]) -> float:
    return float(one["mape_without"] - one["mape"])


def _named(found: Iterable[Mapping[str, Any]]) -> str:
    return ", ".join(f"{one['table']} {100 * _worth(one):+.1f}" for one in [*found][:3])


def full(found: Iterable[Mapping[str, Any]]) -> str:
    """Every table of every mechanism."""
    lines = [
        ["without", "table", "moved", "MAPE", "then", "bias", "then", "memory", "then"],
        ["---", "---", *["---:"] * 7],
    ]
    for one in found:
        cells = [
            "" if one[key] is None else f"{one[key]:{'+' * key.startswith('bias')}.1%}"
            for first in ("mape", "bias", "memory_median")
            for key in (first, f"{first}_without")
        ]
        lines.append([one["mechanism"], one["table"], f"{one['moved']} of {one['rows']}", *cells])
    return _table(lines)


def _table(lines: Iterable[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main(files: Sequence[str]) -> None:
    read = [one for file in files for one in json.loads(Path(file).read_text())]
    order = [one.name for one in mechanisms()]
    found = sorted(read, key=lambda one: (order.index(one["mechanism"]), one["table"]))
    FULL.write_text(HEAD + full(found))
    filled = summary(found)
    PAGE.write_text(MARKED.sub(lambda _: filled, PAGE.read_text()))


if __name__ == "__main__":
    main(sys.argv[1:])
