"""Write an answer as a file: an interactive page, a document for a paper, a table, or JSON."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sim.config import reads
from sim.config.errors import InputError
from sim.config.files import atomic_write
from sim.interface.document import answers, terminal
from sim.interface.document.latex import latex
from sim.interface.document.markdown import markdown
from sim.interface.page import SUFFIXES
from sim.results.answer import Answer, function_of


def write(answer: Answer, path: Path) -> None:
    """Write an answer in the form of the file's ending, whole or not at all. A page shows the files
    that were read within the surrounding `reads.recorded` block. Raises `InputError`."""
    form = _FORMS.get(path.suffix)
    if form is None:
        raise InputError(str(path), "has an unknown ending", f"end it in {', '.join(SUFFIXES)}")
    text = form(answer)
    with atomic_write(path) as part:
        part.write_text(text, encoding="utf-8")


def html(answer: Answer) -> str:
    """Return the page of an answer, with the files that were read within the surrounding
    `reads.recorded` block."""
    return str(function_of(answer.report, "page")(answer, reads.so_far()))


_FORMS: dict[str, Callable[[Any], str]] = {
    ".html": html,
    ".md": lambda answer: markdown(answers.headed(answer)),
    ".tex": lambda answer: latex(answers.headed(answer)),
    ".txt": lambda answer: f"{terminal.text(answers.headed(answer))}\n",
    ".csv": lambda answer: str(answer.to_frame().to_csv()),
    ".json": lambda answer: json.dumps(answer.to_dict()) + "\n",
}
