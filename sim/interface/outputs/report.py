"""`--report`: a page to look around in, or the summary as text."""

from importlib import import_module
from pathlib import Path

from sim.config import reads
from sim.config.files import atomic_write
from sim.results.answer import Answer

HELP = "Write a page to look around in, or the summary as text"
SUFFIXES = (".html", ".txt", ".md")


def write(answer: Answer, path: Path) -> None:
    """HTML where the file ends in .html, else what `sim run` prints. The page shows the files that
    were read within the `recorded` block around it."""
    page = _page(answer) if path.suffix == ".html" else f"{answer}\n"
    with atomic_write(path) as part:
        part.write_text(page, encoding="utf-8")


def _page(answer: Answer) -> str:
    return str(import_module(answer.report).page(answer, reads.so_far()))
