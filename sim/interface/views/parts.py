"""Kernels or collectives held against measured ones: errors by class."""

from sim.analysis.validation.parts import PartValidation
from sim.interface.document.nodes import Document, Sentence, document, table
from sim.results.formatting import Cells

_HEAD = ("", "measured", "median", "p95", "bias")


def view(answer: PartValidation) -> Document:
    """A row for each class: how many, and predicted / measured - 1."""
    inputs = answer.inputs
    short = f"{answer.short:,} kernels of less than 20 us are left out" if answer.short else ""
    return document(
        f"{inputs.cluster or inputs.device}: {len(answer.runs):,} measured",
        table([_row(**errors) for errors in answer.errors], _HEAD),
        Sentence(short) if short else None,
    )


def _row(group: str, runs: int, median: float, p95: float, bias: float) -> Cells:
    return group, f"{runs:,}", f"{median:.1%}", f"{p95:.1%}", f"{bias:+.1%}"
