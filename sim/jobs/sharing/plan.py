"""How updates are shared: the keys of `[sharing]` that all methods have, and the methods' list."""

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import field
from itertools import pairwise
from math import inf, prod
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from sim.collectives.compression import Compression
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.plugins import modules
from sim.config.readable import human_seconds
from sim.config.units import BytesPerSecond, Lt, PositiveSeconds, Seconds
from sim.engine.routes import Regions
from sim.jobs.sharing.learning.efficiency import Efficiency
from sim.jobs.sharing.learning.optimizers import Optimizer, Steps
from sim.jobs.sharing.learning.task import LearningTask, shapes
from sim.jobs.sharing.merging import Merging
from sim.jobs.sharing.tables import (
    Count,
    Fault,
    Learning,
    LinkChange,
    MeasuredStep,
    Natural,
    NonNegative,
    Recovery,
    StragglerCause,
    WorkerGroup,
)
from sim.model import optimizers
from sim.model.kernels import Precision

if TYPE_CHECKING:
    from sim.jobs.sharing.worker_pool import WorkerPool
    from sim.jobs.sharing.workload import Workload

_POWERS = {"none": 0.0, "linear": 1.0, "sqrt": 0.5}  # the rate grows as (averaged gradients)^power

Momentum = Annotated[NonNegative, Lt(1)]
OF_UPDATE = 3e-4  # s of one core to simulate an update
FP32 = 4.0  # bytes of an element of the vectors that methods keep beside a step


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing(ABC):
    """How workers share updates; a subclass for each `method` adds its own keys.

    `workers` is the number of workers; by default they fill the cluster. A `worker` is a "gpu", a
    "node" or a number of GPUs. The GPUs of a worker add up their gradients first. Beside a `[plan]`
    a worker is the group that the plan lays out. Each GPU computes `batch` samples in a step. The
    run ends when the workers have computed `steps` steps each on average, or at the moment `until`
    (s). `copies` of each worker compute the same on as many devices; the first answer counts.
    `efficiency` gives the number of samples to a target as a function of the batch size. `overhead`
    is the software's time for a message (s). `fluid` joins messages to several targets into one
    weighted transfer (`merges_messages`).
    """

    in_step: ClassVar[bool] = False
    """Whether all workers go through each pass together, as synchronised batch norm requires."""
    sends_fp32: ClassVar[bool] = False
    """Whether messages hold differences of fp32 master weights, whatever the step's precision
    (Douillard et al. 2023, algorithm 1). Otherwise they have the precision of the step's weights.
    """

    method: str
    workers: Count | None = None
    worker: Literal["gpu", "node"] | Count = "gpu"
    batch: Count = 32
    steps: Count = 100
    until: PositiveSeconds | None = None
    precision: Precision = "fp32"
    optimizer: str = "momentum"
    copies: Count = 1
    overhead: Seconds = 0.0
    fluid: bool = True
    seed: Natural = 0
    times: MeasuredStep | None = None
    group: tuple[WorkerGroup, ...] = ()
    straggler: tuple[StragglerCause, ...] = ()
    fault: tuple[Fault, ...] = ()
    recovery: Recovery = field(default_factory=Recovery)
    change: tuple[LinkChange, ...] = ()
    regions: Regions | None = None
    compression: Compression = field(default_factory=lambda: Compression(kind="none"))
    learning: Learning | None = None
    efficiency: Efficiency | None = None

    @abstractmethod
    def start(self, pool: "WorkerPool") -> None:
        """Start the method's processes on a pool of workers."""

    def merging(self, optimizer: Optimizer, size: int) -> Merging | None:
        """The rule by which updates change `size` shared weights; None if the method has no shared
        weights."""
        return None

    @property
    def fails_alone(self) -> bool:
        """Whether the other workers go on after a worker has failed."""
        return False

    @property
    def waits(self) -> bool:
        """Whether workers wait for one another, if only now and then. Then all workers go at the
        pace of the slowest board."""
        return not self.fails_alone

    @property
    def merges_late(self) -> bool:
        """Whether weights may change between a worker's read and the merge of the worker's
        update."""
        return False

    @property
    def shard_count(self) -> int:
        """How many servers can fail."""
        return 0

    @property
    def merges_messages(self) -> bool:
        """Whether messages to or from several endpoints are one weighted transfer. All messages of
        a transfer go at the pace of the slowest, which is exact if their links are equally busy."""
        return self.fluid

    @property
    def optimizer_elsewhere(self) -> bool:
        """Whether workers have neither an optimizer nor its states."""
        return False

    def kept(self, parameters: float, width: float, workers: int) -> dict[str, float]:
        """Bytes by part that a GPU with `parameters` parameters keeps for the method beside its
        step."""
        error = self.compression.keeps_error
        return {"compression error": FP32 * parameters} if error else {}

    def kept_first(self, inputs: float, outputs: float, workers: int) -> dict[str, float]:
        """Bytes by part that GPU 0 alone holds beside its step. `inputs` and `outputs` are the
        bytes of one worker's batch."""
        return {}

    @property
    def round_steps(self) -> int:
        """Steps of a worker before its first update; even the shortest run has that many."""
        return 1

    @property
    def details(self) -> list[str]:
        """The settings that distinguish this run of the method, each in a word or two."""
        return []

    def averaged(self, workers: int) -> float:
        """How many workers' gradients one step of the weights averages."""
        return float(workers)

    def rate(self, workers: int) -> float:
        """The learning rate of every step of the (inner) optimizer, after its warm-up."""
        learning = self.learning or Learning()
        return learning.rate * float(self.averaged(workers) ** _POWERS[learning.scaling])

    def update_seconds(self, workers: int, work: "Workload") -> float:
        """Seconds of one core to simulate an update without its arithmetic, as an order of
        magnitude."""
        return OF_UPDATE

    def tries(self, seconds: float, exchange: float) -> float:
        """How many steps are begun for each step that comes to an end. A step takes `seconds`, and
        its exchange of updates takes `exchange` seconds."""
        return 1.0

    def reach(self, workers: int) -> float:
        """How far a worker's gradient moves the reported weights in the end: `outer_reach` x rate /
        `spread`, where `spread` counts averaged gradients. A momentum beta divides it by (1 -
        beta)."""
        learning = self.learning or Learning()
        beta = learning.beta if learning.optimizer in ("momentum", "nesterov") else 0.0
        return self.outer_reach * self.rate(workers) / self.spread(workers) / (1.0 - beta)

    def spread(self, workers: int) -> float:
        """How many workers' gradients are averaged in the reported weights."""
        return self.averaged(workers)

    @property
    def outer_reach(self) -> float:
        """How far an outer optimizer moves the weights in the end, for each unit of a round's
        change."""
        return 1.0

    def rule(self, workers: int, task: LearningTask) -> Optimizer:
        """The (inner) optimizer of `workers` workers."""
        learning = self.learning
        if learning is None:
            return Optimizer()
        return Optimizer(
            rule=learning.optimizer,
            rate=self.rate(workers),
            beta=learning.beta,
            weight_decay=learning.weight_decay,
            trust=learning.trust,
            layers=tuple((prod(shape), len(shape) > 1) for shape in shapes(task)),
            warmup=learning.warmup,
            schedule=learning.schedule,
            span=learning.span or 0,
            start_rate=0.0 if learning.scaling == "none" else learning.rate,
        )

    def own_gpus(self, gpus_per_node: int) -> int:
        """The number of GPUs whose gradients a worker adds up."""
        if isinstance(self.worker, int):
            return self.worker
        return gpus_per_node if self.worker == "node" else 1

    def worker_name(self, gpus_per_node: int) -> str:
        """The description of a worker, in words.

        >>> from sim.jobs.sharing.methods.all_reduce import AllReduce
        >>> [AllReduce(worker=worker).worker_name(8) for worker in ("gpu", "node", 4, 16)]
        ['one GPU', 'one node of 8 GPUs', '4 GPUs', '16 GPUs']
        """
        own_gpus = self.own_gpus(gpus_per_node)
        gpus = "one GPU" if own_gpus == 1 else f"{own_gpus} GPUs"
        node = "one node of " if self.worker == "node" and own_gpus > 1 else ""
        return node + gpus + (f", in {self.copies} copies" if self.copies > 1 else "")

    def gpus_of_worker(self, gpus_per_node: int) -> int:
        """The number of GPUs that a worker occupies, including the GPUs of its copies."""
        return self.copies * self.own_gpus(gpus_per_node)

    @property
    def title(self) -> str:
        """The method in a few words."""
        kind = self.compression.kind
        details = ", ".join([*self.details, *([] if kind == "none" else [kind])])
        name = self.method.replace("_", " ")
        return f"{name} ({details})" if details else name

    def check(self, workers: int, nodes: int, where: str) -> None:
        """Raise `InputError` if the table does not fit the number of workers and nodes."""
        if self.learning is not None and self.learning.decay and not self.merges_late:
            mistake = f"learning.decay with method = {self.method!r}, where no update is late"
            raise InputError(where, mistake, "leave it out")
        for key in ("replicas", "checkpoint") if not self.shard_count else ():
            if getattr(self.recovery, key) != getattr(Recovery(), key):
                mistake = f"recovery.{key} concerns servers, but this method has none"
                raise InputError(where, mistake, "leave it out")
        if any(fault.server is not None for fault in self.fault) and not self.shard_count:
            mistake = "fault: a server fails, but this method has none"
            raise InputError(where, mistake, "name a rank")
        _check_members(self, workers, nodes, where)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerBased(Sharing):
    """Keys of methods that keep the weights on servers.

    The weights are cut into `shards`. `servers` are "dedicated" hosts, "colocated" with the
    workers, or "spare" CPU hosts beside colocated servers (BytePS). A server moves `server_passes`
    bytes of its memory for each byte of an update (it reads the gradient, reads and writes the
    weights), at the bandwidth `server_memory`.
    """

    shards: Count = 1
    servers: Literal["dedicated", "colocated", "spare"] = "dedicated"
    server_bandwidth: BytesPerSecond | None = None
    server_memory: BytesPerSecond = 100e9
    server_passes: NonNegative = 3.0

    def check(self, workers: int, nodes: int, where: str) -> None:
        if self.servers == "colocated" and self.server_bandwidth is not None:
            what = "server_bandwidth is set, but the servers share the workers' NICs"
            raise InputError(where, what, "leave it out, or change network.bandwidth")
        if self.recovery.replicas >= self.shards and self.recovery.replicas:
            what = f"recovery.replicas = {self.recovery.replicas}, but shards = {self.shards}"
            raise InputError(where, what, "set more shards: a replica is on another server")
        for fault in self.fault:
            if fault.server is not None and fault.server >= self.shards:
                what = f"fault: there is no server {fault.server}"
                raise InputError(where, what, f"use 0 to {self.shards - 1}")
            if fault.server is not None and fault.after is None and not self.recovery.replicas:
                what = f"fault: server {fault.server} never comes back, so its weights are lost"
                raise InputError(where, what, "give after, or recovery.replicas = 1")
        Sharing.check(self, workers, nodes, where)  # super() fails in a class with slots

    def merging(self, optimizer: Optimizer, size: int) -> Merging:
        return Merging(rule=Steps(optimizer, size))

    def kept_by_server(self, parameters: float, workers: int) -> dict[str, float]:
        """Bytes by part that servers keep in fp32 beside `parameters` weights."""
        if self.servers == "spare":
            return {}
        return {"optimizer": optimizers.of(self.optimizer).state_bytes(parameters, ())}

    @property
    def merges_messages(self) -> bool:
        """Messages are merged for dedicated servers only: links of servers that are workers, too,
        are not equally busy."""
        return self.fluid and self.servers == "dedicated"

    def update_seconds(self, workers: int, work: "Workload") -> float:
        each = 1e-5 if self.merges_messages else 2e-4
        return OF_UPDATE + self.shards * (each + 5e-5 * self.recovery.replicas)

    @property
    def shard_count(self) -> int:
        return self.shards

    @property
    def server_rate(self) -> float:
        """Bytes of updates that a server merges per second."""
        return self.server_memory / self.server_passes if self.server_passes else float("inf")


def methods() -> list[type[Sharing]]:
    """The keys of every method: the dataclass of each file in `sim.jobs.sharing.methods`."""
    found = modules("sim.jobs.sharing.methods").values()
    return [kind for module in found for kind in methods_of(module)]


def methods_of(module: ModuleType) -> list[type[Sharing]]:
    """The methods that a module defines."""
    return [
        kind
        for kind in vars(module).values()
        if isinstance(kind, type)
        and issubclass(kind, Sharing)
        and kind.__module__ == module.__name__
    ]


def _check_members(plan: Sharing, workers: int, nodes: int, where: str) -> None:
    """Raise `InputError` for a worker or node that does not exist or is named twice.

    Raise it also for a worker or server that fails while it is away."""
    found = [("group", "rank", [rank for group in plan.group for rank in group.ranks])]
    for cause in plan.straggler:
        found.append(("straggler", "rank", list(cause.ranks or ())))
        found.append(("straggler", "node", list(cause.nodes or ())))
    for key, kind, named in found:
        _check_named(key, kind, named, workers if kind == "rank" else nodes, where)
        if twice := [name for name, times in Counter(named).items() if times > 1]:
            mistake = f"{key}: {kind} {twice[0]} is named twice"
            raise InputError(where, mistake, f"name each {kind} once")
    ranks = [fault.rank for fault in plan.fault if fault.rank is not None]
    _check_named("fault", "rank", ranks, workers, where)
    _check_absences(plan.fault, where)


def _check_named(key: str, kind: str, named: Iterable[int], count: int, where: str) -> None:
    for name in named:
        if name >= count:
            there = (
                "there is no worker of rank" if kind == "rank" else "there are no workers on node"
            )
            raise InputError(where, f"{key}: {there} {name}", f"use 0 to {count - 1}")


def _check_absences(faults: Sequence[Fault], where: str) -> None:
    """Raise `InputError` if a worker or server fails while it is away. A server that a replica
    replaces counts as back at once."""
    moments: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for fault in faults:
        name = f"server {fault.server}" if fault.rank is None else f"rank {fault.rank}"
        never = 0.0 if fault.rank is None else inf
        moments[name].append((fault.at, never if fault.after is None else fault.after))
    for name, moment in moments.items():
        moment.sort()
        for (at, after), (again, _) in pairwise(moment):
            if again <= at + after:
                away = f"away from {human_seconds(at)} on"
                mistake = f"fault: {name} fails at {human_seconds(again)}, when it is {away}"
                raise InputError(where, mistake, "leave a fault out, or let the first end earlier")
