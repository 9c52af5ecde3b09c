"""The document of an answer, made by the `view` that its class names."""

from dataclasses import replace
from typing import TYPE_CHECKING

from sim.interface.document import terminal
from sim.interface.document.nodes import Document, Sentence
from sim.results.answer import function_of

if TYPE_CHECKING:
    from sim.results.answer import Answer


def document(answer: "Answer") -> Document:
    """Return the view of an answer, with the notes of its inputs right below the title."""
    seen: Document = function_of(answer.view, "view")(answer)
    notes = tuple(Sentence(note, "note") for note in answer.noted)
    return replace(seen, nodes=(*notes, *seen.nodes))


def text(answer: "Answer") -> str:
    """Return an answer as terminal text."""
    return terminal.text(document(answer))


def html(answer: "Answer") -> str:
    """Return an answer as HTML for a notebook."""
    from sim.interface.document import html as notebook  # late: no command needs it

    return notebook.html(document(answer))


def line(answer: "Answer") -> str:
    """Return an answer in one line."""
    seen = document(answer)
    return " ".join((seen.line or seen.title).split())
