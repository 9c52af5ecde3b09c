"""Jobs with several measured figures each: every figure, errors by figure, pairs."""

from collections.abc import Iterator
from typing import Any

from sim.analysis.validation.figures import FigureRun, FigureValidation, PairRun
from sim.config.units import human_seconds
from sim.interface.document.nodes import Document, Sentence, document, section, table
from sim.results.formatting import Cells


def view(answer: FigureValidation) -> Document:
    """Errors of each figure, the ratios of pairs, all rows with what is assumed of them."""
    pairs = answer.pairs
    same = sum(pair.same_order for pair in pairs)
    return document(
        f"{len({run.id for run in answer.runs})} measured jobs",
        table(map(_error, answer.errors), ("", "measured", "MAPE", "bias", "worst")),
        section(f"Pairs: {same} of {len(pairs)} in the measured order",
                table(map(_pair, pairs), ("", "measured ratio", "predicted", "error")))
        if pairs
        else None,
        section("Rows", table(map(_run, answer.runs), ("", "", "measured", "predicted", "error"))),
        section("Assumed", *(Sentence(text) for text in _assumed(answer))),
    )  # fmt: skip


def _error(errors: dict[str, Any]) -> Cells:
    mape, bias, worst = f"{errors['mape']:.1%}", f"{errors['bias']:+.1%}", f"{errors['worst']:+.1%}"
    return errors["figure"], f"{errors['runs']}", mape, bias, worst


def _pair(pair: PairRun) -> Cells:
    order = "" if pair.same_order else ", other order"
    return (
        f"{pair.first} : {pair.second}",
        f"{pair.measured:.2f}",
        f"{pair.predicted:.2f}",
        f"{pair.error:+.1%}{order}",
    )


def _run(run: FigureRun) -> Cells:
    if run.predicted is None or run.error is None:
        return run.id, run.figure, human_seconds(run.measured), "-", run.reason
    predicted = human_seconds(run.predicted)
    return run.id, run.figure, human_seconds(run.measured), predicted, f"{run.error:+.1%}"


def _assumed(answer: FigureValidation) -> Iterator[str]:
    """What is assumed of rows, each set of assumptions once."""
    of: dict[tuple[str, ...], list[str]] = {}
    for run in answer.runs:
        if run.assumed and run.id not in of.setdefault(run.assumed, []):
            of[run.assumed].append(run.id)
    for assumed, ids in of.items():
        rest = f" and {len(ids) - 1} more" if len(ids) > 1 else ""
        yield f"{ids[0]}{rest}: {'; '.join(assumed)}."
