"""Read tables of measured collectives. A row is a measured collective, and has these columns:

collective, op_name, operation
                        kind of collective (default: the kind in the file's name); rows of
                        kernels (`operation` = kernel) are left out
gpus, workers, num_gpus, ranks
                        number of ranks
nodes                   number of nodes; it also follows from devices_per_node; default 1
network                 if it names a domain, such as NVL72, each domain is a node
size_bytes, bytes       as nccl-tests counts them; or message_size, elements of nccl_dtype
time_us, oop_time_us, ip_time_us, median_ms, time_ms, latency (ms), seconds
                        each column with a value gives a measured time
busbw_GBs, oop_busbw_GBs, ip_busbw_GBs
                        bus bandwidth (nccl-tests, PERFORMANCE.md), if no time is stated

A row of DeepEP's own tables has both of its kernels, dispatch (8 bits an element, and a scale of 4
bytes for 128 elements) and combine (bf16). Its columns are node_num, hidden_size, num_token,
num_topk, num_experts, and for each kernel the microseconds `..._transmit_us` and `..._notify_us`
and the number of SMs `..._sms`. A node has eight GPUs; with Grace CPUs it has four.
"""

import re
from collections.abc import Iterator, Mapping
from math import ceil
from pathlib import Path

from sim.collectives.measured_network import bus_factor
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
    """Yield the measured times of the `wanted` rows. Raises `InputError`."""
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
    """Yield the dispatch and the combine of a row of DeepEP's tables."""
    names = ("node_num", "hidden_size", "num_token", "num_topk", "num_experts")
    given = [int(number(row, (name,)) or 0) for name in names]
    nodes, hidden, tokens, choices, experts = given
    if not all(given):
        fault = f"has no {names[given.index(0)]}"
        raise InputError(row.where, fault, "a row with dispatch_transmit_us needs it")
    per_node = 4 if row.cells.get("device", "").startswith("NVIDIA GB") else 8
    for way, width in (("dispatch", 1.0 + 4 / 128), ("combine", 2.0)):
        notified = f"{way}_notify_us"
        waits = row.cells.get(notified, "").strip("0.") != ""  # no notification within a node
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
    """Return the bytes of a message of `message_size` elements, 0 if a column is missing."""
    width = _WIDTHS.get(row.cells.get("nccl_dtype", ""), 0)
    return width * (number(row, ("message_size",)) or 0.0)


def _kind(text: str) -> str:
    """Return the kind of collective that a text contains, "" if it contains none.

    >>> _kind("send_recv"), _kind("vtrain_node_allreduce")
    ('point_to_point', 'all_reduce')
    """
    plain = text.lower().replace("_", "")
    return next((kind for name, kind in _KINDS.items() if name in plain), "")


def _seconds(row: Row, kind: str, ranks: float, size: float) -> Iterator[float]:
    """Yield the times of a row, or the time that follows from its bus bandwidth."""
    times = [time * unit for name, unit in UNITS.items() if (time := number(row, (name,)))]
    if not times and (bandwidth := number(row, _BUS)):
        factor = bus_factor(kind_named(kind, row.where), int(ranks))
        times = [factor * size / (bandwidth * 1e9)]
    yield from times
