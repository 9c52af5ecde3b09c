"""A cluster as other modules see it: devices in nodes in a network, its links, routes and rates.

Links and routes are computed when a caller asks for them, so a cluster of 65,536 devices costs
nothing beforehand.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.config import catalog, reads
from sim.config.checked import altered, is_rate, structure
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.hardware.cluster.host import HOST_LINKS, STORAGE_LINKS, Host
from sim.hardware.cluster.network import ClusterNetwork, Link, Route
from sim.hardware.cluster.node_fabric import NodeFabric
from sim.hardware.cluster.placement import Placement
from sim.hardware.device import Device, interned

if TYPE_CHECKING:
    from sim.hardware.cluster.storage import Storage

__all__ = ["Degraded", "Link", "Topology", "load"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Degraded:
    """A link (see `Topology.parse_link`) whose capacity is divided by `factor`, at least 1."""

    link: str
    factor: float

    def __post_init__(self) -> None:
        if not (isfinite(self.factor) and self.factor >= 1):
            fault = f"factor = {self.factor:g} must be finite and at least 1"
            raise ValueError(
                f"{fault}: 2 halves the bandwidth; set network.bandwidth for faster links"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology(Placement):
    """A cluster with its links (see `sim.hardware.cluster.network`), some of them perhaps degraded.

    >>> pair = load("dgx-a100-hdr").with_gpus(16)
    >>> pair.route(0, 1), pair.route(3, 11)
    ((('port-up', 0), ('port-down', 1)), (('nic-up', 0, 3), ('nic-down', 1, 3)))
    """

    degraded: tuple[Degraded, ...] = ()

    def __post_init__(self) -> None:
        Placement.__post_init__(self)
        for sick in self.degraded:
            self.parse_link(sick.link)

    @property
    def form(self) -> object:
        """A value that is equal for clusters whose ranks lie in the same places and use the same
        links. Only rates and latencies of links between devices are left out of it."""
        network, nodes = self.network, self.nodes
        placed = self.gpus, self.gpus_per_node, self.slots, self.tray, self.built, self.degraded
        hops = network and network.beyond(nodes, nodes, self.whole)
        joined = structure(self.node), structure(network), hops
        return placed, joined, self.host, self.storage

    @property
    def odd(self) -> tuple[str, ...]:
        """Facts of its links that are possible but unusual, in words."""
        network = None if self.slots else self.network
        found = network.odd(self.whole, self.gpus_per_node) if network else ()
        return *self._odd_rates(), *found

    def _odd_rates(self) -> Iterator[str]:
        """Yield the rates of links that do not suit the parts at their ends."""
        node, network, own = self.node, self.network, self.device.link_bandwidth
        if own and node and not node.network_through_ports and not own / 4 <= node.bandwidth <= own:
            there = f"all links of {self.device.name} carry {_rate(own)} each way"
            yield f"node.bandwidth is {_rate(node.bandwidth)}; {there}"
        if network and self.nodes > 1 and (pcie := self.nic_bandwidth) < network.bandwidth:
            there = f"over PCIe, which carries {_rate(pcie)}; set host.generation to the NIC's own"
            yield f"messages reach a NIC of {_rate(network.bandwidth)} {there}"

    def with_gpus(self, gpus: int, each: int | None = None) -> "Topology":
        """The same cluster with `gpus` of its devices in use. A job uses `each` devices of a node,
        by default `taken(gpus)`.

        Raises `InputError` if the cluster has fewer devices or `gpus` do not fill whole nodes.
        """
        if gpus > self.size:
            whole = -(-gpus // self.gpus_per_node) * self.gpus_per_node
            self.changed(gpus=whole)  # refuses more nodes than its network can join
            from sim.hardware.cluster import inventory

            raise inventory.too_few(self, gpus, whole)
        each, device = each or self.taken(gpus), self.device.among(gpus)
        self._refuse_crowded(gpus, each)
        used: dict[str, Any] = {"gpus": gpus, "device": device, "built": self.size}
        if each == self.gpus_per_node:
            return self.changed(**used)
        network = self.network and self.network.with_slots(each, self.gpus_per_node)
        whole = self.slots or self.gpus_per_node
        return self.changed(**used, gpus_per_node=each, slots=whole, network=network)

    def _refuse_crowded(self, gpus: int, each: int) -> None:
        """Raise `InputError` where `gpus` devices, `each` of a node, need more nodes than exist."""
        slots, nodes = self.slots or self.gpus_per_node, -(-gpus // each)
        if each < slots and nodes > self.size // slots:
            from sim.hardware.cluster import inventory

            raise inventory.crowded(self, gpus, each)

    def with_hosts(self, gpus: int) -> "Topology":
        """The same cluster with further hosts, enough for `gpus` devices; the job is unchanged."""
        return replace(self, built=max(self.size, gpus))

    def changed(self, **changes: Any) -> "Topology":
        """The same cluster with other values of some fields. Raises `InputError`."""
        try:
            return replace(self, **changes)
        except InputError:
            raise
        except ValueError as error:
            raise InputError.of(f"topology {self.name}", error) from None

    @property
    def links(self) -> Iterator[Link]:
        """All links, one by one, which takes long on a large cluster."""
        from sim.hardware.cluster import inventory

        return inventory.links(self)

    def parse_link(self, text: str) -> Route:
        """The links of a name: 'node3.nic0' means both directions, 'node3.nic0.up' only up.

        Raises `InputError` for a text that names no link of this cluster.
        """
        from sim.hardware.cluster import inventory

        return inventory.parse_link(self, text)

    def route(self, source: int, target: int, path: int = 0) -> Route:
        """The links that a message from one GPU to another passes, in order."""
        from sim.hardware.cluster.route import route

        return route(self, source, target, path)

    def delay(self, source: int, target: int) -> float:
        """Latency (s) from one GPU to another: of the links on the way, and of further switches."""
        seconds = sum(self.latency(link) for link in self.route(source, target))
        ends = self.node_of(source), self.node_of(target)
        return seconds + (self.network.above(*ends, self.whole) if self.network else 0.0)

    def capacity(self, link: Link) -> float:
        """B/s of payload that a link carries: bandwidth x efficiency, less where degraded.
        `sim.hardware.cluster.host.UNITS` lists the kinds of links with another unit."""
        factor = _factors(self.degraded).get(link, 1.0) if self.degraded else 1.0
        if link[0] == "workers":  # all processes of a loader count as one
            return 1.0
        if link[0] == "cores" and self.host:  # each device's process has a core of its own
            return max(self.host.cores - self.gpus_per_node, 0) / factor
        part = self._part(link)
        if isinstance(part, NodeFabric | ClusterNetwork):
            share = part.efficiency
        else:
            share = part.efficiency_of(str(link[0]))
        return self.bandwidth(link) * share / factor

    @property
    def nic_bandwidth(self) -> float:
        """Line rate (B/s) of messages at a NIC: with `gpudirect`, at most the payload rate of the
        device's PCIe link, divided by the network's efficiency."""
        network, host = self.network, self.host
        if network is None or host is None or not host.gpudirect:
            return network.bandwidth if network else 0.0
        pcie = host.bandwidth_of("pcie-up") * host.efficiency / network.efficiency
        return min(network.bandwidth, pcie)

    def bandwidth(self, link: Link) -> float:
        """B/s of a link as its data sheet states it: headers counted, nothing degraded."""
        slots = self.gpus_per_node
        match link, self._part(link):
            case ("nvlink", a, b), NodeFabric() as node:
                return node.cable_bandwidth(self.slot_of(a), self.slot_of(b), slots)
            case _, NodeFabric() as node:
                return node.port_bandwidth(slots, min(self.gpus, slots))
            case _, ClusterNetwork() as network:
                return network.bandwidth_of(link)
            case (kind, *_), part:
                return part.bandwidth_of(str(kind))

    def latency(self, link: Link) -> float:
        """Seconds that a link adds to a message; the latencies of a route's links add up."""
        part = self._part(link)
        if isinstance(part, ClusterNetwork):
            return part.latency_of(link)
        if isinstance(part, NodeFabric) and link[0] != "nvlink":
            return part.latency / 2  # one of two ports
        return part.latency

    def _part(self, link: Link) -> "NodeFabric | ClusterNetwork | Host | Storage":
        """The part of the cluster that a link belongs to."""
        kind = link[0]
        in_node = self.node if kind in ("port-up", "port-down", "nvlink") else self.network
        out = self.storage if kind in STORAGE_LINKS else in_node
        part = self.host if kind in HOST_LINKS else out
        if part is None:
            raise ValueError(f"{self.name} has no link {link!r}")
        return part


def _rate(rate: float) -> str:
    from sim.config.readable import human_rate  # few clusters have odd or busy links

    return human_rate(rate)


@cache
def _factors(degraded: tuple[Degraded, ...]) -> dict[Link, float]:
    factors: dict[Link, float] = {}
    if degraded:
        from sim.hardware.cluster.link_names import links_named
    for sick in degraded:
        for link in links_named(sick.link):
            factors[link] = factors.get(link, 1.0) * sick.factor
    return factors


def load(
    name: str, overrides: Mapping[str, Any] | None = None, *, where: str = "command line"
) -> Topology:
    """The cluster that a name in `topologies` (or a path) stands for.

    `overrides` change values of the file before it is validated, by dotted path.
    Raises `InputError` for a wrong file.

    >>> load("dgx-a100-hdr", {"network.bandwidth": "100 Gb/s"}).bandwidth(("nic-up", 0, 0))
    12500000000.0
    """
    given = dict(overrides or {})
    try:
        file = _loaded(name, {}, where)
        rates = {key: value for key, value in given.items() if is_rate(file, key)}
        rest = {key: value for key, value in given.items() if key not in rates}
        topology = altered(_loaded(name, rest, where), rates, f"topology {name}")
    except InputError:  # the file with all of its changes raises the error that names the mistake
        topology = _loaded(name, given, where)
    return _without_other_prices(topology, name, given, where)


_PARTS = {"hour": (), "switch": ("bandwidth", "radix"), "cable": ("bandwidth",),
          "transceiver": ("bandwidth",)}  # fmt: skip


def _without_other_prices(
    topology: Topology, name: str, given: Mapping[str, Any], where: str
) -> Topology:
    """The cluster without prices that their file states for another device or another network."""
    price, unknown = topology.price, dict[str, Any]()
    for part, keys in _PARTS.items():
        if not price or getattr(price, part) is None or {"price", f"price.{part}"} & given.keys():
            continue
        files = catalog.lineage("topologies", catalog.find("topologies", name, where=where))
        path = next(path for path in files if part in catalog.read(path).get("price", {}))
        stated, network = _loaded(str(path), {}, where), topology.network
        if part == "hour" and stated.device.name != topology.device.name:
            if any("price" in catalog.read(file) for file in files[: files.index(path)]):
                fault = f"is missing: {path.stem} has the rent of {stated.device.name}"
                raise InputError(f"topology {name}, price.hour", fault, "give it in [price]")
            return replace(topology, price=None)
        if any(getattr(stated.network, key, None) != getattr(network, key, None) for key in keys):
            unknown[part] = None
    return replace(topology, price=replace(price, **unknown)) if price and unknown else topology


def _asked(name: str, overrides: Mapping[str, Any], where: str) -> object:
    return name, repr(overrides), where


@reads.kept(8, key=_asked)
def _loaded(name: str, overrides: Mapping[str, Any], where: str) -> Topology:
    """The cluster of a file whose values are changed before validation."""
    path = catalog.find("topologies", name, where=where)
    data = {"name": path.stem, **catalog.document("topologies", path, _own_price)}
    of_device = {k: v for k, v in overrides.items() if k.startswith("device.")}
    of_cluster = {k: v for k, v in overrides.items() if k not in of_device}
    place = catalog.place(path, changed=bool(of_cluster))
    if of_cluster.get("device", data.get("device")) != data.get("device"):
        data.pop("price", None)  # the price in the file is that of another device
    if "price.hour" in of_cluster:  # the file's source is for another price
        of_cluster = {"price.source": "", "price.date": "", **of_cluster}
    for key, value in of_cluster.items():
        _set(data, key, value, place)
    if isinstance(data.get("device"), str):
        data["device"] = _device(data["device"], of_device, place)
    topology = catalog.validate(data, Topology, place)
    for state in topology.states:
        catalog.find("topologies", state, where=f"{place}, states")
    return topology


def _own_price(content: dict[str, Any], place: str) -> dict[str, Any]:
    """The content of a file. A rent in it never inherits the source of another file's rent."""
    price = content.get("price")
    if not isinstance(price, Mapping) or "hour" not in price:
        return content
    return content | {"price": {"source": "", "date": "", **price}}


def _device(name: str, overrides: Mapping[str, Any], where: str) -> Device:
    """The device of a cluster, with the `device.` overrides applied to the device's file."""
    path = catalog.find("topologies/devices", name, where=where)
    data = catalog.document("topologies/devices", path)
    place = catalog.place(path, changed=bool(overrides))
    profile = overrides.get("device.profile", data.get("profile", ""))
    if profile:
        from sim.hardware.kernels import profile as profiles

        measured = profiles.load(profile, where=place)
        _check_same(measured.origin.device, path.stem, profile)
        data = profiles.rated(data, measured)
    for key, value in overrides.items():
        _set(data, key.removeprefix("device."), value, place)
    return interned(catalog.validate(data, Device, place))


def _check_same(measured: str, name: str, profile: str) -> None:
    if Path(measured).stem != name:
        fault = f"was measured on {measured}, but the cluster has {name}"
        raise InputError(
            f"profile {profile}", fault, "calibrate that device, or change the cluster"
        )


def _set(data: dict[str, Any], key: str, value: Any, where: str) -> None:
    *tables, last = key.split(".")
    for table in tables:
        inner = data.setdefault(table, {})
        if not isinstance(inner, dict):
            raise InputError(where, f"{table} in {key!r} is not a table", "check the key")
        data = inner
    data[last] = value
