"""The page of answers that have no page of their own: the document, the picture, the inputs."""

from collections.abc import Iterator, Sequence

from sim.interface.document import answers
from sim.interface.document.nodes import Figures, Node, Section, document
from sim.interface.page import inputs
from sim.interface.page.network import element
from sim.interface.page.page import Drawing, html, paged
from sim.results.answer import Answer, Inputs, JobAnswer


def page(answer: Answer, files: Sequence[str]) -> str:
    """Return the page of an answer: its document, its picture, and the files that were read."""
    seen = answers.headed(answer)
    flat = [node for whole in seen.nodes for node in _untitled(whole)]
    first = next((place for place, node in enumerate(flat) if isinstance(node, Section)), len(flat))
    return html(
        document(seen.title, *flat[:first], *_sections(answer, flat[first:], files)),
        subtitle=seen.line,
        numbers=answer.to_dict(),
    )


def _untitled(node: Node) -> Sequence[Node]:
    """Return the nodes inside a section without a title; return any other node as it is."""
    return node.nodes if isinstance(node, Section) and not node.title else [node]


def headline(answer: JobAnswer) -> Figures:
    """Return the key figures of the answer's document."""
    nodes = answers.document(answer).nodes
    return next((node for node in nodes if isinstance(node, Figures)), Figures(()))


def drawn(answer: Answer, *, whole: bool = True) -> Iterator[Section]:
    """Yield the answer's picture, if it has one; `whole` makes no difference here."""
    if answer.picture:
        picture = Drawing(element(answer.plot()), "The answer as a picture.")
        yield paged("Picture", picture, name="picture")


def _sections(answer: Answer, rest: Sequence[Node], files: Sequence[str]) -> Iterator[Section]:
    yield from drawn(answer)
    for number, node in enumerate(node for node in rest if isinstance(node, Section)):
        yield paged(node.title.rstrip(":"), *node.nodes, name=node.name or f"part-{number}")
    said = [node for node in rest if not isinstance(node, Section)]
    if said:
        yield paged("Notes", *said, name="notes")
    given = answer.get("inputs")
    yield inputs.shown([("", given)] if isinstance(given, Inputs) else [], files, ())
