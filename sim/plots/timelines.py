"""Synchronous jobs side by side: their timelines, one under the other, to one scale."""

from typing import TYPE_CHECKING

from sim.plots import pipeline
from sim.plots.picture import Figure

if TYPE_CHECKING:
    from sim.comparison.steps import StepComparison


def figure(compared: "StepComparison") -> Figure:
    """One panel a job that has a timeline."""
    drawn = [(case.name, case.result.timeline) for case in compared.cases]
    return pipeline.figures([pair for pair in drawn if pair[1].roles])
