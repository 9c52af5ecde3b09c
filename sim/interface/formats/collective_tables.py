"""Tables of measured collectives, one a row, by their columns:

collective, op_name, operation
                        kind of collective; where the column is missing, the file's name says it
gpus, workers, num_gpus, ranks
                        ranks; readings of kernels (`operation` = kernel) are left out
nodes                   nodes that they are on, or devices_per_node; 1 otherwise
network                 with the name of a domain, such as NVL72: each domain is a node
size_bytes, bytes       as nccl-tests counts them; or message_size, elements of nccl_dtype
time_us, oop_time_us, ip_time_us, median_ms, time_ms, latency (ms), seconds
                        every filled one is a reading
busbw_GBs, oop_busbw_GBs, ip_busbw_GBs
                        where no time is stated: bus bandwidth (nccl-tests, PERFORMANCE.md)

DeepEP's own tables have a row for both of its kernels: node_num, hidden_size, num_token, num_topk,
num_experts, and of dispatch (eight bits and a scale of 4 bytes for each 128) and combine (bf16)
the seconds `..._transmit_us` and `..._notify_us` on `..._sms` SMs. Nodes have eight GPUs, those of
Grace's four.
"""

import re
from collections.abc import Iterator, Mapping
from math import ceil
from pathlib import Path

from sim.collectives.interconnect import bus_factor
from sim.collectives.schedule import KINDS, kind_named
from sim.config import tables
from sim.config.errors import InputError
from sim.config.tables import Row, number
from sim.jobs.traces.operation_times import OperationTime
from sim.program.routed import Routed

_KINDS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "sendrecv": "point_to_point",
    "broadcast": "broadcast",
}
_DOMAIN = re.compile(r"NVL(\d{1,4})(?!\d)")
_NAMES = ("collective", "op_name", "operation")
UNITS = {
    **dict.fromkeys(("time_us", "oop_time_us", "ip_time_us"), 1e-6),
    **dict.fromkeys(("median_ms", "time_ms", "latency"), 1e-3),
    "seconds": 1.0,
}
_BUS = ("busbw_GBs", "oop_busbw_GBs", "ip_busbw_GBs")
_WIDTHS = {"int8": 1, "half": 2, "bfloat16": 2, "float": 4}  # bytes of an element


def read(path: Path, wanted: Mapping[str, str]) -> Iterator[OperationTime]:
    """The readings of the `wanted` rows. Raises `InputError`."""
    for row in tables.only(tables.rows(path), wanted):
        if number(row, ("dispatch_transmit_us",)):
            yield from _deepep(row, path.name)
            continue
        named = next(filter(None, map(row.cells.get, _NAMES)), path.stem)
        if named == "kernel":
            continue
        kind = named if named in KINDS else _kind(named)
        ranks = number(row, ("workers", "gpus", "num_gpus", "ranks"))
        size = number(row, ("size_bytes", "bytes")) or _of_elements(row)
        if not kind or not ranks or not size:
            lacks = "collective" if not kind else "gpus" if not ranks else "size_bytes"
            fault, remedy = (
                f"has no {lacks}",
                "see the columns in interface/formats/collective_tables.py",
            )
            raise InputError(row.where, fault, remedy)
        per_node = number(row, ("devices_per_node",)) or ranks
        nodes = number(row, ("nodes",)) or ceil(ranks / per_node)
        if domain := _DOMAIN.search(row.cells.get("network", "")):
            nodes = ceil(ranks / max(int(domain[1]), 1))
        for seconds in _seconds(row, kind, ranks, size):
            yield OperationTime(
                operation=kind, ranks=int(ranks), nodes=int(nodes), bytes=size,
                seconds=seconds, source=path.name,
            )  # fmt: skip


def _deepep(row: Row, source: str) -> Iterator[OperationTime]:
    """Dispatch and combine of a row of DeepEP's."""
    names = ("node_num", "hidden_size", "num_token", "num_topk", "num_experts")
    given = [int(number(row, (name,)) or 0) for name in names]
    nodes, hidden, tokens, choices, experts = given
    if not all(given):
        fault = f"has no {names[given.index(0)]}"
        raise InputError(row.where, fault, "it stands beside dispatch_transmit_us")
    per_node = 4 if row.cells.get("device", "").startswith("NVIDIA GB") else 8
    for way, width in (("dispatch", 1.0 + 4 / 128), ("combine", 2.0)):
        notified = f"{way}_notify_us"
        waits = row.cells.get(notified, "").strip("0.") != ""  # within a node nothing is notified
        micro = number(row, (f"{way}_transmit_us",)) or 0.0
        micro += (number(row, (notified,)) or 0.0) if waits else 0.0
        sms = int(number(row, (f"{way}_sms",)) or 0)
        routed = Routed(
            choices=choices, among=experts, groups=nodes, limit=min(nodes, 4),
            item=hidden * width, summed=way == "combine", sms=sms,
        )  # fmt: skip
        yield OperationTime(
            operation="all_to_all", ranks=per_node * nodes, nodes=nodes,
            bytes=tokens * hidden * width, seconds=1e-6 * micro, source=source, routed=routed,
        )  # fmt: skip


def _of_elements(row: Row) -> float:
    """Bytes of a message whose elements are counted, 0 where they are not."""
    width = _WIDTHS.get(row.cells.get("nccl_dtype", ""), 0)
    return width * (number(row, ("message_size",)) or 0.0)


def _kind(text: str) -> str:
    """
    >>> _kind("send_recv"), _kind("vtrain_node_allreduce")
    ('point_to_point', 'all_reduce')
    """
    plain = text.lower().replace("_", "")
    return next((kind for name, kind in _KINDS.items() if name in plain), "")


def _seconds(row: Row, kind: str, ranks: float, size: float) -> Iterator[float]:
    """The times of a row, or the time that follows from its bus bandwidth."""
    times = [time * unit for name, unit in UNITS.items() if (time := number(row, (name,)))]
    if not times and (bandwidth := number(row, _BUS)):
        factor = bus_factor(kind_named(kind, row.where), int(ranks))
        times = [factor * size / (bandwidth * 1e9)]
    yield from times
