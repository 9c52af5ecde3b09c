"""The page of answers that have no page of their own: the document, the picture, the inputs.

An answer names this module as its `report`.
"""

from collections.abc import Iterator, Sequence

from sim.interface.document import answers
from sim.interface.document.nodes import Document, Figures, Section, Sentence, document
from sim.interface.page import inputs
from sim.interface.page.network import element
from sim.interface.page.page import Drawing, html, paged
from sim.results.answer import JobAnswer


def page(answer: JobAnswer, files: Sequence[str]) -> str:
    """Return the page of an answer: its document, its picture, and the files that were read."""
    seen = answers.document(answer)
    top = [node for node in seen.nodes if not isinstance(node, Section | Sentence)]
    return html(
        document(answer.scenario, *top, *_sections(answer, seen, files)),
        subtitle=seen.title,
        numbers=answer.to_dict(),
    )


def headline(answer: JobAnswer) -> Figures:
    """Return the key figures of the answer's document."""
    nodes = answers.document(answer).nodes
    return next((node for node in nodes if isinstance(node, Figures)), Figures(()))


def drawn(answer: JobAnswer, *, whole: bool = True) -> Iterator[Section]:
    """Yield the answer's picture, if it has one; `whole` makes no difference here."""
    if answer.picture:
        picture = Drawing(element(answer.plot()), "The answer as a picture.")
        yield paged("Picture", picture, name="picture")


def _sections(answer: JobAnswer, seen: Document, files: Sequence[str]) -> Iterator[Section]:
    yield from drawn(answer)
    for number, node in enumerate(node for node in seen.nodes if isinstance(node, Section)):
        yield paged(node.title, *node.nodes, name=node.name or f"part-{number}")
    said = [node for node in seen.nodes if isinstance(node, Sentence)]
    if said:
        yield paged("Notes", *said, name="notes")
    yield inputs.shown([("", answer.inputs)], files, ())
