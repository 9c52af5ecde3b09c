"""The page of an explained step: its limits and advice, and the contents of the step's page."""

from collections.abc import Sequence

from sim.analysis.explanation.explain import Explanation
from sim.interface.page import step
from sim.interface.views import explanation as words


def page(answer: Explanation, files: Sequence[str]) -> str:
    """Return the step's page with the sections of the explanation."""
    return step.page(answer.result, files, words.view(answer).nodes)
