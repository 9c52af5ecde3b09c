"""A loader: processes of the host that read samples, decode them and copy them to the device.

A loader reads the samples of the next step beside the current step. Samples pass its links one
after the other, so the slowest link sets its pace. W workers make W / t samples a second, with
t = 1 / rate + operations x latency + read / stream. Storage, NICs, PCIe and memory carry the bytes;
the host's cores spend 1 / rate core seconds on a sample. Other traffic shares all of these links. A
step that ends before its next samples are ready waits for them.
"""

from collections.abc import Iterator
from typing import Annotated, Literal

from sim.config.checked import Checked
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.units import Bytes, Ge, Gt, Unit
from sim.hardware.cluster.topology import Topology
from sim.program.causes import DECODING, LOADING
from sim.program.operations import (
    COMPUTE_STREAM,
    Communicate,
    Compute,
    Copy,
    HostLink,
    Operation,
    Segment,
    Work,
)

Positive = Annotated[float, Gt(0)]
Amounts = tuple[tuple[HostLink, float], ...]  # each link, and the load of a sample on it


@dataclass(frozen=True, slots=True, kw_only=True)
class Loader(Checked):
    """The `[loader]` table of a scenario.

    A sample has `read` bytes in the storage, which take `operations` storage operations, and
    `copied` bytes on the device (by default as many as `read`). A replica has `workers`, each of
    which makes `rate` samples a second if it never waits for storage (None: no limit). The samples
    of `prefetch` steps may be ready or in progress; with 0 a step waits until its own samples are
    read. With `decoding` on the device, each device decodes `device_rate` samples a second between
    two steps. The ranks of a replica's first stage share its samples and its workers. With
    `every_rank` each of these ranks reads all samples, with `workers` of its own.
    """

    read: Annotated[float, Unit("B")]
    copied: Bytes | None = None
    rate: Positive | None = None
    workers: Annotated[int, Ge(1)] = 1
    prefetch: Annotated[int, Ge(0)] = 2
    operations: Annotated[float, Ge(0)] = 1.0
    decoding: Literal["host", "device"] = "host"
    device_rate: Positive | None = None
    every_rank: bool = False

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        if (self.decoding == "device") != (self.device_rate is not None):
            raise ValueError('decoding = "device" and device_rate belong together')

    def on(self, topology: Topology, where: str) -> "Loading":
        """Return the loader on a cluster. Raises `InputError` if the storage is unknown."""
        storage, host = topology.storage, topology.host
        if storage is None:
            fault = f"has a loader, but {topology.name} does not say what its storage is"
            raise InputError(where, fault, "add a [storage] table to the topology")
        copied = self.read if self.copied is None else self.copied
        each = 1.0 / self.rate if self.rate else 0.0
        waits = self.operations * storage.latency
        waits += self.read / storage.stream if storage.stream else 0.0
        amounts: dict[HostLink, float] = dict(path(topology, "down", self.read, where))
        if storage.operations:
            amounts["operations"] = self.operations
        if host:
            amounts["memory"] = amounts.get("memory", 0.0) + copied
            if topology.device.generation != "cpu":
                amounts["pcie-down"] = amounts.get("pcie-down", 0.0) + copied
            if host.cores:
                amounts["cores"] = each
                if host.cores <= topology.gpus_per_node:
                    fault = f"has a loader, but all {host.cores} host cores serve the devices"
                    raise InputError(where, fault, "set host.cores")
        return Loading(
            loader=self,
            amounts=tuple(amounts.items()),
            seconds=each + waits,
            notes=tuple(_unknown(topology)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """A loader on a cluster: the load of a sample on each link, a worker's `seconds` for a sample,
    and notes on links whose speed is unknown."""

    loader: Loader
    amounts: Amounts
    seconds: float
    notes: tuple[str, ...] = ()

    def work(self, samples: float, ranks: int = 1) -> tuple[Operation, ...]:
        """Return the work of each of `ranks` ranks that share the `samples` of a replica's step."""
        loader, share = self.loader, samples / (1 if self.loader.every_rank else ranks)
        size = max(loader.read, loader.copied or 0.0)
        ahead = max(loader.prefetch, 1) * share
        busy = min(loader.workers / (1 if loader.every_rank else ranks), ahead)
        amounts = (*self.amounts, ("workers", self.seconds / busy))
        used = [(link, amount / size) for link, amount in amounts if amount]
        call = Copy(
            kind="stream",
            bytes=share * size,
            name="samples",
            cause=LOADING,
            path=tuple(link for link, _ in used),
            loads=tuple(load for _, load in used),
        )
        stream = "loader" if loader.prefetch else COMPUTE_STREAM
        done: list[Operation] = [Communicate(name="load samples", calls=(call,), stream=stream)]
        if loader.device_rate:
            segment = Segment(name="decode", cause=DECODING, device=share / loader.device_rate)
            done.append(Compute(name="decode", work=Work(name="decode", items=(segment,))))
        return tuple(done)


def path(topology: Topology, way: Literal["up", "down"], size: float, where: str) -> Amounts:
    """Return the links between a host's memory and its storage, each with `size` bytes; "up"
    writes. Raises `InputError` if no link leads to the storage."""
    storage, host, links = topology.storage, topology.host, list[str]()
    assert storage is not None, "asked for a cluster with storage"
    if not storage.remote:
        if host is None or not (host.read and host.write):
            fault = f"storage of {topology.name} is its drives, but its hosts have none"
            raise InputError(where, fault, "set host.read and host.write")
        links += [f"nvme-{way}", "memory"]
    else:
        links += [f"storage-{way}"]
        if storage.bandwidth:
            links += [f"client-{way}"]
        elif topology.network is None or not topology.network.nics:
            fault = f"storage of {topology.name} is reached over NICs, and its nodes have none"
            raise InputError(where, fault, "give storage.bandwidth of each node")
        else:
            links += [f"pod-{way}"] if topology.divided else []
            links += [f"nic-{way}"]
            if host and topology.device.generation != "cpu":  # NICs share the devices' PCIe switch.
                links += ["pcie-up" if way == "down" else "pcie-down"]
        links += ["memory"] if host else []
    return tuple((link, size) for link in links)  # type: ignore[misc]


def _unknown(topology: Topology) -> Iterator[str]:
    """Yield a note for each link of a sample's path whose speed is unknown and limits nothing."""
    host, storage = topology.host, topology.storage
    if host is None:
        yield "PCIe, memory and cores of the hosts are unknown: they do not limit the loader"
    elif not host.cores:
        yield "host.cores is unknown: each worker of the loader is taken to have a core"
    if storage and not storage.operations:
        yield "storage.operations is unknown: it does not limit the loader"
