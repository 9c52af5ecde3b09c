"""How fast a job trains and on what: all that its cost and its goodput need of it."""

from dataclasses import dataclass
from math import inf

from sim.hardware.cluster.topology import Topology
from sim.results.answer import Inputs
from sim.results.likely import Likely


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """A step, or a mean update of workers that share them: its seconds and `tokens` (samples of a
    model without sequences). `size` is that of a checkpoint (bytes), `replicas` how many ranks
    train on data of their own, `sure` what measured runs say, if any. Where `fits` is
    false the job would not run.

    Of `alone` workers each may fail by itself: what stops one are faults of `gpus_of_one`, its own
    and its servers', and it has to do `at_risk` seconds again, half a round of its own in the mean.
    """

    topology: Topology
    seconds: float
    tokens: float
    size: float
    replicas: int
    inputs: Inputs
    fits: bool
    sure: Likely | None = None
    alone: int = 1
    gpus_of_one: int = 0
    at_risk: float = inf
