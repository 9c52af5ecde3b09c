"""`--report`: the summary as a page with its pictures, or as text."""

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from sim.config.files import atomic_write

if TYPE_CHECKING:
    from sim.results.outcome import Outcome
    from sim.results.result import Result

HELP = "Write the summary"
SUFFIXES = (".html", ".txt", ".md")


def write(result: "Result | Outcome", path: Path) -> None:
    """HTML where the file ends in .html, else what `sim run` prints."""
    page = _page(result) if path.suffix == ".html" else f"{result}\n"
    with atomic_write(path) as part:
        part.write_text(page, encoding="utf-8")


def _page(result: "Result | Outcome") -> str:
    head = f'<meta charset="utf-8"><title>{escape(result.scenario)}</title>'
    body = _body(result)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{body}\n</body></html>\n'


def _body(result: "Result | Outcome") -> str:
    from sim.outputs.picture import figure
    from sim.plots import loss
    from sim.plots.picture import rendered
    from sim.results import outcome_text, text
    from sim.results.result import Result

    timeline = rendered(figure(result))
    if isinstance(result, Result):
        return text.html(result, pictures=[timeline])
    curves = [loss.figure([result], title=result.label)] if result.curve else []
    pictures = [timeline, *(rendered(curve, dpi=80) for curve in curves)]
    return outcome_text.html(result, pictures=pictures)
