"""Small pools of workers on small machines, for all tests of sharing."""

from dataclasses import replace
from typing import Any

from sim.collectives.compression import Compression
from sim.collectives.libraries import backend
from sim.engine.machine import Machine
from sim.hardware.cluster import topology
from sim.hardware.cluster.host import Host
from sim.hardware.cluster.networks.trees import Switch
from sim.jobs.sharing.kind import answer
from sim.jobs.sharing.outcome import Outcome
from sim.jobs.sharing.plan import ServerBased, Sharing, methods
from sim.jobs.sharing.run import run
from sim.jobs.sharing.setup import SharingSetup, assemble
from sim.jobs.sharing.tables import Learning, Recovery, StragglerCause
from sim.jobs.sharing.worker_pool import WorkerPool
from sim.jobs.sharing.workload import Workload
from sim.variability.laws import Lognormal

MEMORY = 10e9  # B/s of the memory of a host of several
RATE = 1.25e9  # B/s of every host's link
SIZE = 25e6  # bytes of all weights
STEP = 0.1  # s of forward and backward

JITTER = (StragglerCause(law=Lognormal(sigma=0.3)),)
QUADRATIC = Learning(task="quadratic", rate=0.05, noise=0.3, unlike=0.5)

METHODS: dict[str, Any] = {kind.__dataclass_fields__["method"].default: kind for kind in methods()}


def hosts() -> Machine:
    """Single-GPU hosts on one switch, links of `RATE` without latency or headers."""
    dgx = topology.load("dgx-1-v100")
    network = Switch(kind="infiniband", nics=1, bandwidth=RATE, latency=0.0)
    alone = replace(dgx, gpus=1, gpus_per_node=1, node=None, network=network)
    return Machine(alone, backend.load("nccl"))


def one_host() -> Machine:
    """Eight processors that share one memory."""
    dgx = topology.load("dgx-1-v100")
    device = replace(dgx.device, generation="cpu")
    host = Host(generation=4, memory=1e12, memory_bandwidth=MEMORY)
    return Machine(replace(dgx, device=device, gpus=8, host=host), hosts().backend)


def fast() -> Machine:
    """Hosts whose links take no time worth the name, so that nothing collides."""
    machine = hosts()
    network = replace(machine.topology.network, bandwidth=1e18)
    return replace(machine, topology=replace(machine.topology, network=network))


_KEYS = {"topk": ("ratio",), "randomk": ("ratio",), "powersgd": ("rank",)}


def compressed(kind: Any, **options: Any) -> Compression:
    """With those of the options that the kind has."""
    own = {key: options[key] for key in _KEYS.get(kind, ()) if key in options}
    return Compression(kind=kind, **own)


def work(**options: Any) -> Workload:
    return replace(Workload.plain(STEP, SIZE / 4), **options)


def plan(method: str, **options: Any) -> Sharing:
    """A plan whose servers take no time, unless told otherwise."""
    kind = METHODS[method]
    free = {"server_passes": 0.0} if issubclass(kind, ServerBased) else {}
    at_once = Recovery(detection=0.0, restart=0.0)  # what failures cost is tested by itself
    keys = {"workers": 4, "steps": 20, "recovery": at_once} | free | options
    return kind(**keys)  # type: ignore[no-any-return]


def setup(
    method: str, *, task: Any = None, workload: Any = None, machine: Any = None, **options: Any
) -> SharingSetup:
    usual = one_host() if method == "hogwild" else hosts()
    machine, workload = machine or usual, workload or work()
    return assemble(plan(method, **options), machine, workload, task=task)


def outcome(method: str, **options: Any) -> Outcome:
    return answer(setup(method, **options))


def trained(method: str, **options: Any) -> WorkerPool:
    """The pool itself at the end of its run."""
    return run(setup(method, **options))


def spans(outcome: Outcome) -> list[tuple[Any, ...]]:
    """What happened, in order, without what the weights were."""
    return [(s.role, s.stream, s.name, s.start, s.end) for s in outcome.timeline.spans]
