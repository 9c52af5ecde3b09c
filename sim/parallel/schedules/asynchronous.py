"""Schedules whose pipelines do not drain: 1F1B goes on through the optimizer steps of each stage.

A microbatch's backward pass uses the weights of its forward pass, so a stage keeps several versions
of its weights (weight stashing). On p equal stages without communication a microbatch takes F + B
and there is no bubble. With an update after every m microbatches, stage s keeps

    PipeDream                       1 + ceil((p-s-1) / m)   versions; p - s with m = 1
    PipeDream with vertical sync    1 + ceil((p-1) / m)     the first stage's number, on all stages
    PipeDream-2BW                   2                       m >= p

Gradients of a stage with v versions are v - 1 updates late. Copies between versions are not
modelled. (Narayanan et al. 2019, doi 10.1145/3341301.3359646, section 3.3; Harlap et al. 2018,
arXiv 1806.03377; Narayanan et al. 2021, arXiv 2006.09503, section 3.1.)
"""

from dataclasses import replace

from sim.parallel.schedule import Entry
from sim.parallel.schedules.flush import one_f_one_b
from sim.program.schedule import Schedule

_PAPER = "Narayanan et al. 2019, doi 10.1145/3341301.3359646, figure 4"


def _pipedream(stages: int, microbatches: int, chunks: int = 1) -> Schedule:
    return replace(one_f_one_b(stages, microbatches, chunks), name="pipedream")


def _stashed(stage: int, stages: int, microbatches: int) -> int:
    """Return a stage's versions under PipeDream: the stage has p-s microbatches in flight, whose
    forward passes use that many versions."""
    return 1 - (stage + 1 - stages) // microbatches


def _synchronised(stage: int, stages: int, microbatches: int) -> int:
    """Return a stage's versions under vertical sync: as many as the first stage has."""
    return _stashed(0, stages, microbatches)


def _double_buffered(stage: int, stages: int, microbatches: int) -> int:
    """Return two versions for every stage: the weights before and after the last update."""
    return 2


SCHEDULES = (
    Entry(name="pipedream", paper=_PAPER, order=_pipedream, versions=_stashed),
    Entry(name="pipedream-vertical", paper=_PAPER, order=_pipedream, versions=_synchronised),
    Entry(
        name="pipedream-2bw",
        paper="Narayanan et al. 2021, arXiv 2006.09503, figure 2",
        order=_pipedream,
        least=lambda stages: stages,
        versions=_double_buffered,
    ),
)
