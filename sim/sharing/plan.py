"""How updates are shared: the `[sharing]` table of a scenario, validated."""

from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt

from sim.collectives.compression import Compression
from sim.config.errors import InputError
from sim.config.schema import Tagged
from sim.config.units import Bytes, BytesPerSecond, Seconds
from sim.model.kernels import Precision
from sim.sharing.graphs import graph
from sim.sharing.learning.optimizers import Rule
from sim.variability.laws import LAWS, SlowdownLaw

Count = Annotated[int, Ge(1)]
Natural = Annotated[int, Ge(0)]
Share = Annotated[float, Gt(0)]
Method = Literal[
    "all_reduce", "data_parallel", "parameter_server", "gossip", "local_sgd", "async_local_sgd",
    "federated",
]  # fmt: skip
Mode = Literal["bsp", "async", "ssp", "backup"]
Algorithm = Literal["d_psgd", "ad_psgd", "sgp", "random_pairs"]
Servers = Literal["dedicated", "colocated", "spare"]
Task = Literal["none", "quadratic", "logistic", "perceptron"]

# The keys that each method has besides those that all of them share.
_SERVER = ("shards", "servers", "server_bandwidth", "server_memory", "server_passes")
_OWN: dict[str, tuple[str, ...]] = {
    "all_reduce": ("overlap", "bucket"),
    "data_parallel": (),
    "parameter_server": ("mode", "bound", "backup", "overlap", "bucket", *_SERVER),
    "gossip": ("algorithm", "graph", "overlap", "rendezvous", "consensus"),
    "local_sgd": ("period", "outer_rate", "outer_momentum", "nesterov"),
    "async_local_sgd": (
        "period", "dynamic", "outer_rate", "outer_momentum", "delay", *_SERVER,
    ),
    "federated": ("period", "fraction", "unequal", "online", "offline", "late", *_SERVER),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """A step that was measured: seconds of its passes and the number of parameters."""

    forward: Seconds
    backward: Seconds
    parameters: Share
    layers: Count = 1
    optimizer: Seconds = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Some workers that differ from the others: another device, perhaps with another software
    stack (a CPU among GPUs), or `slowdown` times as slow."""

    ranks: tuple[Natural, ...]
    device: str = ""
    stack: str = ""
    slowdown: Share = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StragglerCause:
    """Steps that take longer by a law, for some ranks or nodes, or for all.

    With `links` it is these that are slow, by another factor every `interval` (at least 1). Several
    causes multiply.
    """

    law: Annotated[SlowdownLaw, Tagged("kind", lambda: LAWS, inline=True)]
    ranks: tuple[Natural, ...] | None = None
    nodes: tuple[Natural, ...] | None = None
    links: tuple[str, ...] = ()
    interval: Annotated[Seconds, Gt(0)] = 1.0

    def __post_init__(self) -> None:
        if self.links and (self.ranks is not None or self.nodes is not None):
            raise ValueError("ranks or nodes are slow in their steps, links by time; write two")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A worker that fails at `at`, loses its step, and is back `after` later, or never."""

    rank: Natural
    at: Seconds
    after: Seconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wide:
    """Regions of `nodes` nodes each, every one joined to the others by one link."""

    nodes: Count
    bandwidth: BytesPerSecond
    latency: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """From `at` on, a link carries 1/`factor` of its capacity."""

    link: str
    at: Seconds
    factor: Share


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """A task of `sim.sharing.learning` that the simulated order of updates drives.

    `unlike` makes the workers' data differ. The rate and rule are those of the (inner) optimizer;
    with `decay` of the rate by staleness an update s updates late counts 1/(1 + s).
    """

    task: Task = "quadratic"
    size: Count = 10
    noise: Annotated[float, Ge(0)] = 0.1
    condition: Annotated[float, Ge(1)] = 10.0
    unlike: Annotated[float, Ge(0)] = 0.0
    optimizer: Rule = "sgd"
    rate: Share = 0.1
    beta: Annotated[float, Ge(0)] = 0.9
    decay: bool = False
    target: Share | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """Who shares what with whom, and when.

    All methods: `workers` (all GPUs, or nodes, by default), each a `gpu` or a `node` whose GPUs
    add up their gradients first; `batch` samples of a GPU and step; `steps` of each worker, or as
    many as fit into `until`; `copies` of every worker's computation, of which the first answer
    counts; `overhead`, the software's cost of a message; `fluid` sends to several targets as one
    weighted transfer, otherwise message by message.

    Parameter server: `mode`, with the staleness `bound` of "ssp" and the `backup` workers of
    "backup"; `shards` servers of equal size, `dedicated` hosts of their own, `colocated` with the
    workers, or `spare` CPU hosts beside colocated ones (BytePS); `server_passes` of
    `server_memory` bandwidth for each byte of an update (read the gradient, read and write the
    weights). With `overlap` layers of at least `bucket` are pushed and pulled beside the passes.

    Gossip: `algorithm` on a `graph` by name or edges; with `rendezvous` messages leave when their
    readers are ready; `consensus` is CHOCO-SGD's step size, below 1 for coarse compression. Local
    SGD: `period` steps between averages,
    applied with `outer_rate` and `outer_momentum` (Nesterov's is DiLoCo's). Asynchronous local
    SGD: `dynamic` local updates and momentum every `delay` arrivals. Federated: a `fraction` of the
    workers each round, `unequal` data (the exponent of a power law), who are `online` and
    `offline` for such times, of which a share of `late` is not waited for.
    """

    method: Method
    workers: Count | None = None
    worker: Literal["gpu", "node"] = "gpu"
    batch: Count = 32
    steps: Count = 100
    until: Seconds | None = None
    precision: Precision = "fp32"
    optimizer: Literal["adam", "sgd", "lamb"] = "sgd"
    copies: Count = 1
    overhead: Seconds = 0.0
    fluid: bool = True
    seed: Natural = 0
    mode: Mode = "bsp"
    bound: int = 0
    backup: int = 0
    shards: Count = 1
    servers: Servers = "dedicated"
    server_bandwidth: BytesPerSecond | None = None
    server_memory: BytesPerSecond = 100e9
    server_passes: Annotated[float, Ge(0)] = 3.0
    overlap: bool = False
    bucket: Bytes = 25 * 2.0**20
    algorithm: Algorithm = "d_psgd"
    graph: str | tuple[tuple[int, ...], ...] = "ring"
    rendezvous: bool = False
    consensus: Share = 1.0
    period: Count = 1
    dynamic: bool = False
    outer_rate: Share = 1.0
    outer_momentum: Annotated[float, Ge(0)] = 0.0
    nesterov: bool = False
    delay: Count = 1
    fraction: Share = 1.0
    unequal: Annotated[float, Ge(0)] = 0.0
    online: Seconds = 0.0
    offline: Seconds = 0.0
    late: Annotated[float, Ge(0)] = 0.0
    times: Times | None = None
    group: tuple[Group, ...] = ()
    straggler: tuple[StragglerCause, ...] = ()
    fault: tuple[Fault, ...] = ()
    change: tuple[Change, ...] = ()
    regions: Wide | None = None
    compression: Compression = field(default_factory=Compression)
    learning: Learning | None = None

    def __post_init__(self) -> None:
        self._refuse_keys_of_other_methods()
        if self.bound < 0:
            raise ValueError(f"bound = {self.bound} is below 0; a staleness bound is 0, 1, 2 ...")
        if self.backup < 0:
            raise ValueError(f"backup = {self.backup} is below 0; 0 waits for everyone")
        if self.bound and self.mode != "ssp":
            raise ValueError(f'a bound with mode = "{self.mode}"; set mode = "ssp"')
        if self.backup and self.mode != "backup":
            raise ValueError(f'backup workers with mode = "{self.mode}"; set mode = "backup"')
        if self.overlap and self.method == "parameter_server" and self.mode != "bsp":
            raise ValueError('layer by layer needs mode = "bsp"; leave overlap out')
        self._refuse_compression()
        if not self.fraction <= 1 or not self.late < 1 or not self.outer_momentum < 1:
            raise ValueError("fraction, late and outer_momentum are shares; write 0.1")

    def _refuse_compression(self) -> None:
        kind = self.compression.kind
        if self.method == "data_parallel" and kind != "none":
            raise ValueError("data_parallel sends gradients as they are; leave compression out")
        if self.method != "gossip":
            return
        if self.algorithm == "sgp" and kind not in ("none", "fp16", "int8"):
            raise ValueError(f'push-sum cannot do with parts of its sums: not "{kind}" but "fp16"')
        if self.algorithm == "ad_psgd" and self.rendezvous:
            raise ValueError("ad_psgd asks nobody: its partners wait for nothing; no rendezvous")

    def _refuse_keys_of_other_methods(self) -> None:
        known = _OWN[self.method]
        owned = {key for keys in _OWN.values() for key in keys}
        for one in fields(type(self)):
            if one.name in owned and one.name not in known:
                value: Any = getattr(self, one.name)
                if value != one.default:
                    owners = [method for method, keys in _OWN.items() if one.name in keys]
                    raise ValueError(
                        f"{self.method} has no {one.name}; it belongs to {' and '.join(owners)}"
                    )

    def check(self, workers: int, where: str) -> None:
        """Raise `InputError` where the table does not fit so many workers."""
        if self.backup >= workers:
            what = f"backup = {self.backup} of {workers} workers: nobody is left to wait for"
            raise InputError(where, what, f"set backup to at most {workers - 1}")
        if self.method == "gossip" and workers < 2:
            raise InputError(where, "gossip needs at least 2 workers", "set workers = 2")
        if self.method == "gossip":
            graph(self.graph, workers, where=f"{where}.graph")
        named = [("fault", one.rank) for one in self.fault]
        named += [("straggler", rank) for one in self.straggler for rank in one.ranks or ()]
        named += [("group", rank) for group in self.group for rank in group.ranks]
        for key, rank in named:
            if rank >= workers:
                what = f"{key}: rank = {rank} but there are {workers} workers"
                raise InputError(where, what, f"use 0 to {workers - 1}")
