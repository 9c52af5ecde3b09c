"""Measured times that the host needs to dispatch torch's operators, by phase of the step.

They are in a CSV beside a profile (its key `operators`), with one operator and phase per row:

    operator,phase,seconds,each,spread,calls

`operator` is torch's name ("mm"; "view" stands for all views). `phase` is forward (with autograd's
recording), backward (with the node of autograd's engine) or optimizer. `seconds` is the host's time
for a call with all of its kernels; `each` is the time that every tensor adds in operators on
lists (fused optimizers). `spread` is the interquartile range over the median, and `calls` is the
number of timed calls. The profile's provenance names the machine and the version of torch.
"""

import csv
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal, get_args

from sim.config import catalog, reads, spoken, tables
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.files import atomic_write
from sim.config.units import Ge

Phase = Literal["forward", "backward", "optimizer"]
VIEW = "view"

COLUMNS = ("operator", "phase", "seconds", "each", "spread", "calls")


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTime:
    """The host's seconds for a call of an operator; columns of the CSV."""

    operator: str
    phase: Phase
    seconds: Annotated[float, Ge(0)]
    each: Annotated[float, Ge(0)] = 0.0
    spread: Annotated[float, Ge(0)] = 0.0
    calls: int = 0

    def of(self, tensors: int) -> float:
        """Seconds of a call on lists of `tensors` tensors: seconds + each * tensors."""
        return self.seconds + self.each * tensors


def fused_as_one(name: str) -> str:
    """The name of an operator in the table, which is the same for all kernels of fused attention.

    The kernel depends on the device and the data type; the time to call it does not.

    >>> fused_as_one("_scaled_dot_product_flash_attention_backward"), fused_as_one("mm")
    ('scaled_dot_product_attention_backward', 'mm')
    """
    if "dot_product" not in name or "attention" not in name:
        return name
    return f"scaled_dot_product_attention{'_backward' if 'backward' in name else ''}"


def read(table: Path, owner: Path) -> tuple[OperatorTime, ...]:
    """The rows of a CSV. Raises `InputError` naming the line that is wrong."""
    if not reads.exists(table):
        fault = f"{table.name} is not beside it"
        raise InputError(catalog.place(owner), fault, "keep the files together")
    remedy = "take the CSV that the profile came with"
    found: dict[tuple[str, Phase], OperatorTime] = {}
    for where, cells in tables.rows(
        table, place=catalog.place(table), headings=COLUMNS, remedy=remedy
    ):
        try:
            row = _row(cells)
            if found.setdefault((row.operator, row.phase), row) is not row:
                raise ValueError(f"{row.operator}, {row.phase} stands above already")
        except (ValueError, TypeError) as error:
            fault = f"is no operator's time ({error})"
            raise InputError(where, fault, "correct or remove the line") from None
    return tuple(found.values())


def _row(cells: dict[str, str]) -> OperatorTime:
    if cells["phase"] not in get_args(Phase):
        raise ValueError(f"phase {cells['phase']!r} is none of {', '.join(get_args(Phase))}")
    if not cells["operator"].strip():
        raise ValueError("it names no operator")
    calls = int(cells["calls"])
    if calls < 0:
        raise ValueError(f"calls = {calls} must not be negative")
    return OperatorTime(
        operator=cells["operator"],
        phase=cells["phase"],  # type: ignore[arg-type]
        seconds=_number(cells["seconds"]),
        each=_number(cells["each"]),
        spread=_number(cells["spread"]),
        calls=calls,
    )


def _number(text: str) -> float:
    return spoken.number_in(text) if float(text) else 0.0


def write(times: Iterable[OperatorTime], path: Path) -> None:
    """Write the CSV, completely or not at all."""
    with atomic_write(path) as part, part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for reading in times:
            figures = {key: f"{getattr(reading, key):.4g}" for key in ("seconds", "each", "spread")}
            writer.writerow(asdict(reading) | figures)
