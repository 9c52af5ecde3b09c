"""Where a job can be moved to, as a table."""

from sim.analysis.explanation.moves import Move, Moves
from sim.config.units import human_bytes, human_seconds
from sim.interface.document.nodes import Document, Section, Sentence, document, section, table
from sim.results.formatting import Cells, count, several

_MOST = 40  # moves that are shown
_FITS = {True: "fits", False: "does not fit", None: "unknown"}


def view(answer: Moves) -> Document:
    """The best moves, and what is refused."""
    best = answer.moves[0].moved if answer.moves else "none"
    head = ("moved to", "samples", "step", "samples/s", "per GPU", "memory", "")
    title = (
        f"{answer.title}: {len(answer.moves)} of {len(answer.moves) + len(answer.refused)} moves"
    )
    return document(
        f"{title} can be played; the most samples a second and GPU: {best}",
        table(map(_row, answer.moves[:_MOST]), head),
        _more(len(answer.moves) - _MOST),
        _refused(answer) if answer.refused else None,
        line=f"{title} can be played",
    )


def _more(left: int) -> Section | None:
    if left <= 0:
        return None
    return section("", Sentence(f"{several(left, 'move')} behind them; --report moves.csv has all"))


def _row(move: Move) -> Cells:
    return (
        move.moved,
        f"{move.samples:,.0f}" if move.samples else "unknown",
        human_seconds(move.step_time),
        count(move.rate * move.gpus),
        count(move.rate),
        human_bytes(move.memory),
        _FITS[move.result.fits],
    )


def _refused(answer: Moves) -> Section:
    return section("Moves that cannot be played", table(answer.refused))
