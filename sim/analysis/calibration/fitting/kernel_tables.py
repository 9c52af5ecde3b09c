"""Kernels that others measured. They come from traces of PyTorch's profiler (`.json`, `.json.gz`),
which give products, and from tables with a row for each kernel. The columns of tables:

    m, n, k                 a product of (m, k) by (k, n); `batch` or `groups` counts equal products
    isl, num_heads, head_dim, num_key_value_heads, batch_size, window_size
                            fused attention of whole sequences, causal if kv heads are stated; if
                            `step` is above 0, attention of one query to isl + step cached tokens
    num_tokens, hidden_size, inter_size, topk, num_experts, moe_tp_size, moe_ep_size
                            gated experts of one rank; the tokens are spread evenly over experts
    op                      in all other rows, the kind of a memory-bound kernel
    bytes, min_bytes        the bytes that this kernel reads and writes; a row needs either column
    precision, gemm_dtype, moe_dtype, kv_cache_dtype, attn_dtype
                            the first filled column is the row's precision
    seconds, median_ms, time_ms, latency_ms, time_us, median_us
                            the first filled column is the row's time

If the column `framework` says `trtllm`, a row's time includes kernels that run before the row's
kernel. These kernels quantise the input of products in eight and four bits; for causal attention,
they rotate queries and keys and write keys and values into the cache.
The CSV of a profile is such a table (`sim.hardware.kernels.measurements`), and so is the table that
`sim calibrate import` makes of traces. If several rows have the same kernel, the median of their
times counts. As in `kernel_suite`, some kernels are kept out of the fit.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path
from statistics import median
from typing import NamedTuple, cast

from sim.analysis.calibration.fitting.device_profile import traced
from sim.analysis.calibration.timing.kernel_suite import EVERY, size_kept_out
from sim.config import tables
from sim.config.errors import InputError
from sim.config.grouped import grouped
from sim.config.tables import Row, number
from sim.hardware.device import Device
from sim.hardware.kernels.dispatch import OperatorTime
from sim.hardware.kernels.measurements import Measurement, measurement_of
from sim.hardware.kernels.time import kernel_time
from sim.jobs.traces.described import Event
from sim.jobs.traces.kineto import events_of
from sim.jobs.traces.kineto_operators import HostCall, host_calls, timed_kernels
from sim.model.kernels import BYTES, Attention, Gemm, Kernel, MemoryBound, Precision

_UNITS = {
    "seconds": 1.0,
    **dict.fromkeys(("median_ms", "time_ms", "latency_ms"), 1e-3),
    **dict.fromkeys(("time_us", "median_us"), 1e-6),
}
_PRECISIONS = {
    "bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "nvfp4": "fp4"
}  # fmt: skip


def read(
    paths: Sequence[Path],
    wanted: Mapping[str, str],
    kinds: Mapping[str, str],
    precision: str,
    generation: str,
) -> tuple[list[Measurement], tuple[OperatorTime, ...]]:
    """Return the kernels of several traces and of the `wanted` rows of tables, and the host times
    of operators in the traces. `kinds` maps names in the column `op` to this program's names.
    Products whose row states no precision have `precision`. `generation` is the device's. Raises
    `InputError`, also if a trace of a CPU is given for a GPU or a trace of a GPU for a CPU."""
    times: defaultdict[Kernel, list[float]] = defaultdict(list)
    calls: list[HostCall] = []
    for path in paths:
        if path.suffix in (".json", ".gz"):
            events = events_of(path)
            refuse_of_other(path, events, generation)
            calls += host_calls(events)
            found = timed_kernels(events)
            timed: Iterable[tuple[Kernel, float]] = (k for k in found if isinstance(k[0], Gemm))
        else:
            timed = map(_alone, timed_rows(path, wanted, kinds, precision))
        for kernel, seconds in timed:
            times[kernel].append(seconds)
    if not times:
        remedy = "take a table with m, n, k or bytes, or a trace with record_shapes=True"
        raise InputError(str(paths[0]), "holds no kernels with their sizes", remedy)
    return list(_kept_out(times)), traced(calls)


def refuse_of_other(path: Path, events: Iterable[Event], generation: str) -> None:
    """Raise `InputError` if a trace of a CPU is given for a GPU, or a trace of a GPU for a CPU."""
    on_cpu = not any(event.get("cat") == "kernel" for event in events)
    if on_cpu != (generation == "cpu"):
        fault = f"has {'no ' * on_cpu}kernels of a GPU, but --as names a {generation!r} device"
        raise InputError(str(path), fault, "name the device on which the trace was recorded")


class TimedRow(NamedTuple):
    """A kernel of a table with its seconds, which include the kernels that ran `before` it."""

    kernel: Kernel
    seconds: float
    before: tuple[Kernel, ...]
    where: str

    def seconds_before(self, device: Device) -> float:
        """Return the seconds of the kernels that run before this one. Their constants were fitted
        when memory-bound kernels had no `gap` between them, so the gap counts as zero."""
        close = replace(device, stream=replace(device.stream, gap=0.0))
        return sum(kernel_time(kernel, close) for kernel in self.before)


def timed_rows(
    path: Path, wanted: Mapping[str, str], kinds: Mapping[str, str], precision: str
) -> Iterator[TimedRow]:
    """Yield the kernels of a table with their seconds, one for each row. Raises `InputError`."""
    for row in tables.only(tables.rows(path), wanted):
        if "kernel" in row.cells:
            measured = measurement_of(row.cells, row.where)
            yield TimedRow(measured.kernel, measured.seconds, (), row.where)
            continue
        if "num_experts" in row.cells:
            *others, last = _experts(row, precision)
            yield TimedRow(last, _seconds(row), tuple(others), row.where)
            continue
        kernel = _kernel(row, kinds, precision)
        if kernel is not None:
            before = _before(kernel) if row.cells.get("framework") == "trtllm" else ()
            yield TimedRow(kernel, _seconds(row), before, row.where)


def _alone(row: TimedRow) -> tuple[Kernel, float]:
    if row.before:
        fault = f"the row's time includes other kernels, too ({row.before[0].name})"
        raise InputError(row.where, fault, "choose other rows (--rows)")
    return row.kernel, row.seconds


# Kernels that TensorRT-LLM runs before others, fitted on five devices (docs/kernels.md). _QUANTISED
# is for inputs of products: bytes moved per element, launches, and elements of a row per wait for
# memory. Before attention, _TURNED bytes per element of the queries and _CACHED bytes per element
# of keys and values are moved, in _CALLS launches.
_QUANTISED = {"fp8": (6.5, 5, 0), "fp4": (4.4, 3, 200)}
_TURNED, _CACHED, _CALLS = 9.0, 2.8, 7


def _before(kernel: Kernel) -> tuple[MemoryBound, ...]:
    if isinstance(kernel, Attention) and kernel.causal:
        each = _TURNED * kernel.heads + 2 * _CACHED * kernel.kv_heads
        moved = kernel.batch * kernel.q * kernel.head * each
        return (MemoryBound(name="turn and cache", bytes=moved, launches=_CALLS),)
    if not isinstance(kernel, Gemm) or kernel.precision not in _QUANTISED:
        return ()
    each, launches, row = _QUANTISED[kernel.precision]
    turns, moved = kernel.k // row if row else 0, each * kernel.m * kernel.k
    return (MemoryBound(name="quantise", bytes=moved, launches=launches, turns=turns),)


def _kernel(row: Row, kinds: Mapping[str, str], precision: str) -> Kernel | None:
    sizes = [number(row, (name,)) for name in "mnk"]
    if "k" in row.cells and all(sizes):
        m, n, k = (int(size or 0) for size in sizes)
        batch = int(number(row, ("batch", "groups")) or 1)
        of = _precision(row, precision)
        return Gemm(name="forward", m=m, n=n, k=k, batch=batch, precision=of)
    if "isl" in row.cells and "head_dim" in row.cells:
        return _attention(row, precision)
    moved = number(row, ("bytes", "min_bytes"))
    if moved is None:
        return None
    if "op" not in row.cells:
        raise InputError(row.where, "has neither m, n, k nor op", "take a table with either")
    name = row.cells["op"]
    return MemoryBound(name=kinds.get(name, name), bytes=moved)


def _attention(row: Row, precision: str) -> Attention:
    batch, length, heads, head = (
        int(number(row, (name,)) or 1) for name in ("batch_size", "isl", "num_heads", "head_dim")
    )
    shared = "num_key_value_heads" in row.cells
    kv_heads = int(number(row, ("num_key_value_heads",)) or heads)
    if row.cells.get("step", "").removesuffix(".0") not in ("", "0"):
        cached = length + int(number(row, ("step",)) or 0)
        return Attention(
            name="decode", batch=batch, heads=heads, kv_heads=kv_heads, q=1, kv=cached, head=head,
            causal=False, window=_window(row), precision=_precision(row, precision),
        )  # fmt: skip
    return Attention(
        name="", batch=batch, heads=heads, kv_heads=kv_heads, q=length, kv=length, head=head,
        causal=shared, window=_window(row), precision=_precision(row, precision),
    )  # fmt: skip


_SORTED = 9  # launches that route and sort tokens and sum their results: 13 to 18 us on H100


def _experts(row: Row, precision: str) -> tuple[Kernel, ...]:
    """Return the kernels of one rank's experts. The first kernel sorts tokens and does the work
    between the products; both products follow. If tokens choose `topk` of all experts at random,
    they reach this number of experts: experts x (1 - (1 - topk / experts)^tokens)."""
    if row.cells.get("distribution", "balanced") != "balanced":
        fault = "does not say how many tokens each expert has"
        raise InputError(row.where, fault, "choose the rows with distribution=balanced")
    names = ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts")
    tokens, hidden, width, choices, experts = (number(row, (name,)) or 1 for name in names)
    tp, ep = (number(row, (name,)) or 1 for name in ("moe_tp_size", "moe_ep_size"))
    rows, width, of = tokens * choices / ep, width / tp, _precision(row, precision)
    hit = max(1, round(experts / ep * (1 - (1 - min(1, choices / experts)) ** tokens)))
    first = Gemm(
        name="experts in", m=ceil(rows / hit), n=round(2 * width), k=round(hidden), batch=hit,
        precision=of,
    )  # fmt: skip
    second = replace(first, name="experts", n=first.k, k=round(width))
    moved = 6.0 * (rows + tokens) * hidden + 9.0 * rows * width
    return MemoryBound(name="experts' rows", bytes=moved, launches=_SORTED), first, second


def _window(row: Row) -> int:
    """Return the most keys that a query sees; 0 or -1 stands for all keys."""
    cell = row.cells.get("window_size", "")
    none = cell.removesuffix(".0") in ("", "0", "-1")
    return 0 if none else int(number(row, ("window_size",)) or 0)


def _precision(row: Row, usual: str) -> Precision:
    # Attention that reads a cache in eight bits multiplies in eight bits.
    keys = ("precision", "gemm_dtype", "moe_dtype", "kv_cache_dtype", "attn_dtype")
    cells = (row.cells.get(key) for key in keys)
    named = next((cell for cell in cells if cell), usual)
    found = _PRECISIONS.get(named, named)
    if found not in BYTES:
        remedy = f"choose rows that have one of {', '.join(BYTES)}"
        raise InputError(row.where, f"no precision {named!r}", remedy)
    return cast(Precision, found)


def _seconds(row: Row) -> float:
    for name, unit in _UNITS.items():
        if time := number(row, (name,)):
            return time * unit
    raise InputError(row.where, "has no time", f"take a table with one of {', '.join(_UNITS)}")


def _kept_out(times: Mapping[Kernel, Sequence[float]]) -> Iterator[Measurement]:
    products = [kernel for kernel in times if isinstance(kernel, Gemm)]
    products.sort(key=lambda gemm: (gemm.precision, gemm.m, gemm.n, gemm.k, gemm.batch))
    for place, product in enumerate(products, start=1):
        yield _measured(product, times[product], kept_out=place % EVERY == 0)
    curves = grouped((kernel.name, kernel) for kernel in times if isinstance(kernel, MemoryBound))
    for curve in curves.values():
        curve.sort(key=lambda kernel: kernel.bytes)
        for place, moved in enumerate(curve):
            yield _measured(moved, times[moved], kept_out=size_kept_out(place, len(curve)))


def _measured(kernel: Kernel, seconds: Iterable[float], *, kept_out: bool) -> Measurement:
    return Measurement(kernel=kernel, seconds=median(seconds), kept_out=kept_out)
