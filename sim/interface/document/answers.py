"""The document of an answer, made by the `view` that its class names."""

from dataclasses import replace
from typing import TYPE_CHECKING

from sim.interface.document import terminal
from sim.interface.document.nodes import Document, Sentence
from sim.results.answer import function_of

if TYPE_CHECKING:
    from sim.results.answer import Answer


def document(answer: "Answer") -> Document:
    """The view of an answer, below its title what its inputs note."""
    seen: Document = function_of(answer.view, "view")(answer)
    notes = tuple(Sentence(note, "note") for note in answer.noted)
    return replace(seen, nodes=(*notes, *seen.nodes))


def text(answer: "Answer") -> str:
    """An answer as a terminal shows it."""
    return terminal.text(document(answer))


def html(answer: "Answer") -> str:
    """An answer as a notebook shows it."""
    from sim.interface.document import html as notebook  # no command needs it

    return notebook.html(document(answer))


def line(answer: "Answer") -> str:
    """An answer in one line."""
    seen = document(answer)
    return " ".join((seen.line or seen.title).split())
