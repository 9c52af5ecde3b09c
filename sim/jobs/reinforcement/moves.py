"""Other ways to run a loop on the same GPUs: who writes answers, in which layout, how stale.

`sim plan` plays each and ranks them by answers a second. The trainer keeps its plan; it has what
servers leave. A few steps are played behind those in which the loop fills.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import ceil

from sim.config.dataclass import dataclass
from sim.jobs.reinforcement.scenario import Servers
from sim.jobs.reinforcement.setup import ReinforcementSetup, from_scenario
from sim.parallel.mesh import axes
from sim.results.by_line import Suggestion

_EIGHTHS = range(2, 7)  # of the GPUs that write
_STALENESS = (1.0, 2.0)  # of GPUs of their own
_STEPS = 3  # that are played and counted


def moves(setup: ReinforcementSetup) -> list[Suggestion]:
    """Turns on all GPUs, and each division of them, with servers of half, as many and twice as many
    GPUs, for bounds of one and two steps."""
    layout = setup.plan.servers.layout
    node = setup.machine.topology.gpus_per_node
    degrees = [tp for tp in (layout.tp // 2, layout.tp, 2 * layout.tp) if 1 <= tp <= node]
    ways = [_Way(0, tp, 0.0) for tp in degrees]
    ways += [
        _Way(gpus, tp, staleness)
        for gpus in _divisions(setup)
        for tp in degrees
        for staleness in _STALENESS
        if gpus % (tp * layout.pp * layout.dp) == 0
    ]
    return [
        Suggestion(line="", change=way.told, why="another way to divide", samples=1.0, made=way)
        for way in ways
    ]


def _divisions(setup: ReinforcementSetup) -> Iterator[int]:
    """GPUs that write, about the eighths of all, that leave whole nodes and whole replicas."""
    plan = setup.training.plan
    whole = plan.degree(name for name, axis in axes().items() if axis.divides != "batch")
    total = len(setup.trainer) + setup.plan.servers.gpus
    node = setup.machine.topology.gpus_per_node
    found = set()
    for part in _EIGHTHS:
        gpus = total * part // 8
        gpus -= gpus % node if total > node else 0
        if gpus and (total - gpus) % whole == 0:
            found.add(gpus)
    yield from sorted(found)


@dataclass(frozen=True, slots=True)
class _Way:
    """Servers of `tp` on `gpus` of their own (0: on the trainer's, in turns)."""

    gpus: int
    tp: int
    staleness: float

    @property
    def told(self) -> str:
        """It in a few words."""
        servers = f"servers of {self.tp}"
        if not self.gpus:
            return f"turns on all GPUs, {servers}"
        bound = "1 step" if self.staleness == 1.0 else f"{self.staleness:g} steps"
        return f"{self.gpus:,} GPUs write, {servers}, at most {bound} ahead"

    def __call__(self, setup: ReinforcementSetup) -> ReinforcementSetup:
        scenario, loop = setup.scenario, setup.plan
        total = len(setup.trainer) + loop.servers.gpus + loop.reward.gpus
        own = loop.servers
        servers = Servers(
            engine=own.engine, tuning=own.tuning, gpus=self.gpus,
            shared=not self.gpus, layout=replace(own.layout, tp=self.tp),
        )  # fmt: skip
        changed = replace(
            loop,
            servers=servers,
            staleness=self.staleness,
            swap="continue" if self.gpus else "drain",
            oversample=0.0,
            chunk=loop.chunk if self.gpus else 0,
            steps=_STEPS,
            warmup=1 + ceil(self.staleness),
        )
        return from_scenario(replace(scenario, reinforcement=changed, gpus=total), keep_spans=0)
