"""The host of a node: its links to devices, memory, drives and processors.

Copies to and from the host are traffic on the links of their paths. Loaders, checkpoints, offload
and gradients therefore share links as any other traffic does.
"""

from typing import Annotated

from sim.config.dataclass import dataclass
from sim.config.units import Bytes, BytesPerSecond, Ge, Seconds, Share

# Transfers a second of a lane, and the share of them that is data (PCI Express base specifications:
# 8b/10b up to generation 2, 128b/130b to 5, 1b/1b flits with 236 of 256 bytes in 6).
_LANES = {3: (8e9, 128 / 130), 4: (16e9, 128 / 130), 5: (32e9, 128 / 130), 6: (64e9, 236 / 256)}

HOST_LINKS = ("pcie-up", "pcie-down", "memory", "nvme-up", "nvme-down", "cores")


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The content of a topology's `[host]` table.

    Every `devices_per_link` devices share one link to the host: PCIe of `generation` and `lanes`
    (the uplink of their switch), or another link with `bandwidth` each way (NVLink-C2C).
    `efficiency` is the share of payload in the bytes on the link. The default holds for PCIe:
    packets of 256 bytes with 28 bytes of framing, sequence number, header and check sums (PCI
    Express base specification, chapters 2 and 3), beside flow control. `memory` and
    `memory_bandwidth` (reads and writes together, as STREAM measures them) are the node's; `read`
    and `write` are the bandwidths of its NVMe drives. `latency` is the time of an empty copy
    (cudaMemcpyAsync, pinned). Each device's process keeps one of the `cores` (0: unknown) busy.
    With `gpudirect`, messages to other nodes pass a device's own PCIe link to its NIC.
    """

    generation: int = 0
    bandwidth: BytesPerSecond = 0.0
    lanes: int = 16
    devices_per_link: int = 1
    memory: Bytes
    memory_bandwidth: BytesPerSecond
    read: BytesPerSecond = 0.0
    write: BytesPerSecond = 0.0
    efficiency: Share = 0.85
    latency: Seconds = 10e-6
    cores: Annotated[int, Ge(0)] = 0
    gpudirect: bool = False

    def __post_init__(self) -> None:
        if (self.bandwidth > 0) == (self.generation > 0):
            raise ValueError("a host has one kind of link; give generation (of PCIe) or bandwidth")
        if self.generation and self.generation not in _LANES:
            raise ValueError(f"generation = {self.generation} of PCIe is unknown; give 3 to 6")
        if self.gpudirect and self.devices_per_link > 1:
            raise ValueError("gpudirect needs a link for each device: set devices_per_link = 1")

    def bandwidth_of(self, kind: str) -> float:
        """B/s of a link of this kind, with headers; the number of cores for "cores".

        >>> host = Host(generation=4, memory=1e12, memory_bandwidth=300e9)
        >>> round(host.bandwidth_of("pcie-up") / 1e9, 1)
        31.5
        """
        transfers, share = _LANES.get(self.generation, (0.0, 0.0))
        pcie = self.bandwidth or transfers * share * self.lanes / 8
        return {
            "pcie-up": pcie,
            "pcie-down": pcie,
            "memory": self.memory_bandwidth,
            "nvme-up": self.write,
            "nvme-down": self.read,
            "cores": float(self.cores),
        }[kind]

    def efficiency_of(self, kind: str) -> float:
        """The share of payload on a link: 1 for memory and drives, whose rates are measured."""
        return self.efficiency if kind.startswith("pcie") else 1.0


STORAGE_LINKS = ("storage-up", "storage-down", "operations", "client-up", "client-down")
UNITS = {"operations": "op/s", "cores": "cores", "workers": "team"}
