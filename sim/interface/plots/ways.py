"""Workers that share updates, in several ways side by side."""

from typing import cast

from sim.analysis.comparison.sharing import SharingComparison
from sim.config.units import human_seconds
from sim.interface.plots import loss, pipeline
from sim.interface.plots.picture import Figure
from sim.jobs.sharing.outcome import Outcome


def figure(compared: SharingComparison) -> Figure:
    """Loss against time, samples and bytes; the first steps where nothing is learnt."""
    outcomes = compared.outcomes
    if any(outcome.curve for outcome in outcomes.values()):
        runs = [
            cast("tuple[Outcome, ...]", own.runs) or outcomes[own.name] for own in compared.cases
        ]
        return loss.figure(runs, names=list(outcomes), title=compared.title)
    drawn = {name: own for name, own in outcomes.items() if own.timeline.roles}
    window = max((own.excerpt.end for own in drawn.values()), default=0.0)
    timelines = [(name, own.first(window)) for name, own in drawn.items()]
    shown = [f"{human_seconds(own.time)} in all" for own in drawn.values()]
    return pipeline.figures(timelines, shown=shown)
