"""Small teams on small machines, for all tests of sharing."""

from dataclasses import replace
from typing import Any

from sim.collectives.libraries import backend
from sim.engine.machine import Machine
from sim.hardware.cluster import topology
from sim.hardware.cluster.networks.switch import Switch
from sim.sharing.outcome import Outcome
from sim.sharing.plan import Learning, Sharing, Slow
from sim.sharing.run import METHODS, build, play, stage
from sim.sharing.team import Team
from sim.sharing.workload import Workload

RATE = 1.25e9  # B/s of every host's link
SIZE = 25e6  # bytes of all weights
STEP = 0.1  # s of forward and backward

JITTER = (Slow(kind="lognormal", sigma=0.3),)
QUADRATIC = Learning(task="quadratic", rate=0.05, noise=0.3, unlike=0.5)


def hosts() -> Machine:
    """Single-GPU hosts on one switch, links of `RATE` without latency or headers."""
    dgx = topology.load("dgx-1-v100")
    network = Switch(kind="infiniband", nics=1, bandwidth=RATE, latency=0.0)
    alone = replace(dgx, gpus=1, gpus_per_node=1, node=None, network=network)
    return Machine(alone, backend.load("nccl"))


def work(**options: Any) -> Workload:
    return replace(Workload.plain(STEP, SIZE / 4), **options)


def plan(method: str, **options: Any) -> Sharing:
    """A plan whose servers take no time, unless told otherwise."""
    served = method in ("parameter_server", "async_local_sgd", "federated")
    free = {"server_passes": 0.0} if served else {}
    return Sharing(method=method, **({"workers": 4, "steps": 20} | free | options))


def played(method: str, *, task: Any = None, load: Any = None, **options: Any) -> Outcome:
    made = plan(method, **options)
    return play(stage(made, hosts(), load or work(), task=task))


def lived(method: str, *, task: Any = None, load: Any = None, **options: Any) -> Team:
    """The team itself at the end of its run."""
    team = build(stage(plan(method, **options), hosts(), load or work(), task=task))
    METHODS[method](team)
    team.world.run()
    return team


def spans(outcome: Outcome) -> list[tuple[Any, ...]]:
    """What happened, in order, without what the weights were."""
    return [(s.role, s.stream, s.name, s.start, s.end) for s in outcome.timeline.spans]
