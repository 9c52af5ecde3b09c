"""Synchronous jobs side by side: their timelines, one under the other, to one scale."""

from sim.analysis.comparison.steps import StepComparison
from sim.interface.plots import pipeline
from sim.interface.plots.picture import Figure


def figure(compared: StepComparison) -> Figure:
    """A panel for each job that has a timeline."""
    drawn = [(case.name, case.result.timeline) for case in compared.cases]
    return pipeline.figures([pair for pair in drawn if pair[1].roles])
