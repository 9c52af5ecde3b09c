"""Clusters with a slow link, or with a link that other traffic shares."""

from sim.config.errors import InputError
from sim.config.readable import human_rate
from sim.hardware.cluster.link_names import link_name
from sim.hardware.cluster.topology import Degraded, Link, Topology


def slowed(topology: Topology, link: str | Link, factor: float) -> Topology:
    """The same cluster with the capacity of one link divided by `factor`.

    Raises `InputError` where there is no such link or the factor is less than 1.

    >>> from sim.hardware.cluster.topology import load
    >>> sick = slowed(load("dgx-a100-hdr"), "node3.nic0", 2.0)
    >>> sick.capacity(("nic-up", 3, 0)) / sick.capacity(("nic-up", 3, 1))
    0.5
    """
    text = link if isinstance(link, str) else link_name(link)
    topology.parse_link(text)
    try:
        sick = Degraded(link=text, factor=factor)
    except ValueError as error:
        raise InputError.of(f"link {text!r}", error) from None
    return topology.changed(degraded=(*topology.degraded, sick))


def shared(topology: Topology, link: str, rate: float) -> Topology:
    """The same cluster with `rate` (B/s) of a link's capacity taken by other traffic.

    Raises `InputError` where there is no such link, or `rate` takes all of the link's capacity.

    >>> from sim.hardware.cluster.topology import load
    >>> busy = shared(load("dgx-a100-hdr"), "node3.nic0", 5e9)
    >>> busy.capacity(("nic-up", 3, 1)) - busy.capacity(("nic-up", 3, 0))
    5000000000.0
    """
    parts = topology.parse_link(link)
    for part in parts:
        if rate >= (capacity := topology.capacity(part)):
            fault = f"{human_rate(rate)} of traffic leaves nothing of its {human_rate(capacity)}"
            raise InputError(f"link {link!r}", fault, "state less traffic")
        topology = slowed(topology, part, capacity / (capacity - rate))
    return topology
