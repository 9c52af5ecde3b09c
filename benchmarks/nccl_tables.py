"""Published nccl-tests runs as measured collectives: what was measured, and on which fabric."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from csv import DictReader
from dataclasses import replace
from io import StringIO
from pathlib import Path
from statistics import median

from sim.analysis.calibration.fitting.measured_collectives import MeasuredCollective
from sim.collectives.cable_rings import DGX1
from sim.collectives.interconnect import Interconnect
from sim.collectives.schedule import GroupShape, kind_named
from sim.config import reads
from sim.interface.formats import collective_tables

GB = 1e9

# NVIDIA data sheets: NVLink each way of V100, A100 and H100; NVLink SHARP since the H100's switch.
V100 = Interconnect(generation="volta", gpus_per_node=8, port_bandwidth=150 * GB)
A100 = Interconnect(generation="ampere", gpus_per_node=8, port_bandwidth=300 * GB)
H100 = Interconnect(generation="hopper", gpus_per_node=8, port_bandwidth=450 * GB, nvls=True)
B200 = Interconnect(generation="blackwell", gpus_per_node=8, port_bandwidth=900 * GB, nvls=True)
GPUS = {"V100": V100, "A100": A100, "H100": H100}
CUBE_MESH = replace(V100, mesh=DGX1, cable_bandwidth=25 * GB)

# The tables' `inter` column by its first words: kind of network, NICs a node, bandwidth of each.
NETWORKS = {
    "3200 Gb/s EFA": ("efa", 8, 50 * GB),
    "400 Gb/s EFA": ("efa-v1", 4, 12.5 * GB),
    "100 Gb/s EFA": ("efa-host", 1, 12.5 * GB),
    "8x400 Gb/s IB": ("infiniband", 8, 50 * GB),
    "16x100 Gb/s RoCE": ("roce", 16, 12.5 * GB),
}

# For tables whose source shows fewer NICs at work than the nodes have. NVIDIA's answer to the log
# in NVIDIA/nccl issue 527: 6 channels on 4 nodes, "suggesting that only 3 NICs were available"
# (AddyLaddy, 2022-07-25). Nothing is fitted to that table.
NICS_IN_USE = {"a100_aws_p4d_issue527": 3}


# aiconfigurator's systems.
SYSTEMS = {
    "a100_sxm": A100, "h100_sxm": H100, "h200_sxm": H100, "b200_sxm": B200, "gb200": B200
}  # fmt: skip


def read(
    nccl_tests: Path, node_all_reduce: Path, by_system: Path | None = None
) -> tuple[list[MeasuredCollective], dict[str, str]]:
    """All that can be used, and by table why the others cannot."""
    skipped: dict[str, str] = {}
    published = list(_published(_rows(nccl_tests), skipped))
    found = [*published, *_within_a_node(_rows(node_all_reduce))]
    return found + (_by_system(by_system) if by_system else []), skipped


def _rows(path: Path) -> list[dict[str, str]]:
    return list(DictReader(StringIO(reads.text(path))))


def _by_system(path: Path) -> list[MeasuredCollective]:
    """A table for each system, kind and number of GPUs; calls of one size take their median."""
    times: defaultdict[tuple[str, str, int, float], list[float]] = defaultdict(list)
    for system in SYSTEMS:
        for call in collective_tables.read(path, {"system": system}):
            times[system, call.operation, call.ranks, call.bytes].append(call.seconds)
    return [
        MeasuredCollective(
            table=f"{system} {kind} {gpus}",
            kind=kind_named(kind, system),
            size=size,
            shape=GroupShape(ranks=gpus),
            interconnect=SYSTEMS[system],
            time=median(every),
        )
        for (system, kind, gpus, size), every in sorted(times.items())
    ]


def _published(rows: list[dict[str, str]], skipped: dict[str, str]) -> Iterator[MeasuredCollective]:
    for row in rows:
        interconnect = _fabric(row)
        if not row["size_bytes"].isdigit():
            skipped[row["table_id"]] = "size not stated"
        elif interconnect is None:
            skipped[row["table_id"]] = f"network not stated: {row['inter']}"
        else:
            yield MeasuredCollective(
                table=row["table_id"],
                kind=kind_named(row["collective"], row["table_id"]),
                size=float(row["size_bytes"]),
                shape=GroupShape(ranks=int(row["gpus"]), nodes=int(row["nodes"])),
                interconnect=interconnect,
                time=_time(row),
                algorithms=("ring",) if "(ring)" in row["nccl"] else (),
            )


def _time(row: Mapping[str, str]) -> float:
    """The quicker of out of place and in place: a hiccup of the machine spoils one of them."""
    return min(float(row[c]) for c in ("oop_time_us", "ip_time_us") if row[c]) * 1e-6


def _fabric(row: Mapping[str, str]) -> Interconnect | None:
    gpu = GPUS[row["gpu"].split()[0]]
    if row["nodes"] == "1":
        return gpu
    for words, (kind, nics, bandwidth) in NETWORKS.items():
        if row["inter"].startswith(words):
            used = NICS_IN_USE.get(row["table_id"], nics)
            return replace(gpu, network=kind, nics_per_node=used, nic_bandwidth=bandwidth)
    return None


def _within_a_node(rows: list[dict[str, str]]) -> Iterator[MeasuredCollective]:
    for row in rows:
        yield MeasuredCollective(
            table=f"{row['gpu']}_node_vtrain",
            kind="all_reduce",
            size=float(row["size_bytes"]),
            shape=GroupShape(ranks=int(row["gpus"])),
            interconnect=CUBE_MESH if row["gpu"] == "v100" else A100,
            time=float(row["time_us"]) * 1e-6,
        )
