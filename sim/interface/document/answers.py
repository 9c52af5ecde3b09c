"""The document of an answer, made by the `view` that its class names."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from sim.interface.document import terminal
from sim.interface.document.nodes import Document, Sentence
from sim.results.answer import Inputs, function_of
from sim.results.formatting import several

if TYPE_CHECKING:
    import pandas as pd

    from sim.results.answer import Answer


def document(answer: "Answer") -> Document:
    """Return the view of an answer, with the notes of its inputs right below the title."""
    seen: Document = function_of(answer.view, "view")(answer)
    notes = tuple(Sentence(note, "note") for note in answer.noted)
    return replace(seen, nodes=(*notes, *seen.nodes))


def headed(answer: "Answer") -> Document:
    """Return the document for a file of its own: a heading, then the job that was asked about."""
    seen = document(answer)
    title = seen.title or answer.title or seen.line
    return replace(seen, title=title, nodes=(*map(Sentence, _job(answer)), *seen.nodes))


def _job(answer: "Answer") -> Iterator[str]:
    """Yield the model, the cluster, the software and the batch of an answer about a single job."""
    inputs = answer.get("inputs")
    if isinstance(inputs, Inputs) and inputs.model and inputs.cluster:
        place = f"{several(inputs.gpus, 'GPU')} of {inputs.cluster} ({inputs.device})"
        step = ", ".join(filter(None, (inputs.precision, inputs.step)))
        yield f"{inputs.model} on {place}; {step}"


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


def frame(answer: "Answer") -> "pd.DataFrame":
    """Return the rows of an answer as a table. An answer without rows gives a row for each piece of
    a span of its timeline."""
    if not answer.frame_rows:
        from sim.engine.pieces import frame_of

        return frame_of(answer.get("timeline"))
    import pandas as pd

    rows = pd.DataFrame(list(answer.get(answer.frame_rows)))
    return rows.set_index(list(answer.frame_index)) if answer.frame_index else rows
