"""The timeline of a run, as far as a picture has room for it."""

from sim.interface.plots import pipeline
from sim.interface.plots.picture import Figure
from sim.results.answer import Answer


def figure(answer: Answer) -> Figure:
    """A row for each role; the first steps where updates are shared."""
    assert answer.excerpt is not None  # of all answers that name this picture
    return pipeline.figure(answer.excerpt, title=answer.title, shown=answer.excerpt_name)
