"""Measured kernels, and the CSV beside a profile that keeps them, one kernel per row:

    kernel,name,variant,m,n,k,batch,heads,kv_heads,head,causal,backward,accumulate,precision,bytes,
    seconds,spread,kept_out

For attention, m and n are the numbers of queries and keys. `name` is the kind of a memory-bound
kernel ("gelu", "norm grad"; "stream" for any). `variant` is one of a linear layer's three products,
or the generation of fused attention that ran. `seconds` is the median time, and `spread` the
interquartile range over the median. `kept_out` says that the fit did not use the row.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from sim.config import catalog, reads, spoken, tables
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.model.kernels import Attention, Gemm, Kernel, MemoryBound

COLUMNS = (
    *("kernel", "name", "variant", "m", "n", "k", "batch", "heads", "kv_heads", "head", "causal"),
    *("backward", "accumulate", "precision", "bytes", "seconds", "spread", "kept_out"),
)
HEADING = f"{','.join(COLUMNS)}\n"
ANY = "stream"  # stands for every kind of memory-bound kernel that was not measured

KernelClass = Literal["gemm", "attention", "stream"]
CsvRow = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One kernel's median time (s), its relative spread, and whether the fit leaves it out."""

    kernel: Kernel
    seconds: float
    spread: float = 0.0
    kept_out: bool = False


def class_of(kernel: Kernel) -> KernelClass:
    if isinstance(kernel, Gemm):
        return "gemm"
    return "attention" if isinstance(kernel, Attention) else "stream"


def variant(gemm: Gemm) -> str:
    """The product of a linear layer: "forward", "dgrad" or "wgrad". The three
    products differ in the layout of their operands in memory."""
    last = gemm.name.rpartition(" ")[2]
    return last if last in ("dgrad", "wgrad") else "forward"


def read(table: Path, owner: Path) -> Iterable[Measurement]:
    """The measurements of a CSV. Raises `InputError` naming the line that is wrong."""
    if not reads.exists(table):
        fault = f"{table.name} is not beside it"
        raise InputError(catalog.place(owner), fault, "keep the two files together")
    remedy = "take the CSV that the profile came with"
    for where, cells in tables.rows(table, place=catalog.place(table), remedy=remedy):
        yield measurement_of(cells, where)


def measurement_of(row: CsvRow, where: str) -> Measurement:
    """The measurement of a row. Raises `InputError` if the row has none."""
    try:
        return measurement(row)
    except (KeyError, ValueError, TypeError) as error:
        fault = f"is not a measured kernel ({error})"
        raise InputError(where, fault, "correct or remove the line") from None


def measurement(row: CsvRow) -> Measurement:
    """The measurement of a row. Raises `ValueError` or `KeyError` if the row has none."""
    kernel = _KERNELS[row["kernel"]](row)
    seconds = spoken.number_in(row["seconds"])
    spread = float(row.get("spread") or 0.0)
    if not 0 <= spread < math.inf:
        raise ValueError(f"spread = {spread} must not be negative")
    kept_out = _true(row.get("kept_out", "false"))
    return Measurement(kernel=kernel, seconds=seconds, spread=spread, kept_out=kept_out)


def row(measured: Measurement) -> dict[str, str]:
    """A measurement as a row of the CSV."""
    kernel = measured.kernel
    named: dict[str, Any] = {"kernel": class_of(kernel), "name": kernel.name}
    if isinstance(kernel, Gemm):
        named |= {"name": "", "variant": variant(kernel)}
        named |= {key: getattr(kernel, key) for key in ("m", "n", "k", "batch", "accumulate")}
    elif isinstance(kernel, Attention):
        named |= {"name": "", "variant": kernel.name, "m": kernel.q, "n": kernel.kv}
        keys = ("batch", "heads", "kv_heads", "head", "causal", "backward")
        named |= {key: getattr(kernel, key) for key in keys}
    else:
        named["bytes"] = int(kernel.bytes)
    if not isinstance(kernel, MemoryBound):
        named["precision"] = kernel.precision
    named |= {"seconds": f"{measured.seconds:.6g}", "spread": f"{measured.spread:.3g}"}
    named["kept_out"] = measured.kept_out
    return {key: _written(named.get(key, "")) for key in COLUMNS}


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _gemm(row: CsvRow) -> Gemm:
    m, n, k, batch = (int(row[key]) for key in ("m", "n", "k", "batch"))
    return Gemm(
        name=row.get("variant") or "forward",
        m=m,
        n=n,
        k=k,
        batch=batch,
        precision=row["precision"],  # type: ignore[arg-type]  # may be one that no kernel has
        accumulate=_true(row["accumulate"]),
    )


def _attention(row: CsvRow) -> Attention:
    keys = ("m", "n", "batch", "heads", "kv_heads", "head")
    q, kv, batch, heads, kv_heads, head = (int(row[key]) for key in keys)
    return Attention(
        name=row.get("variant") or "",
        batch=batch,
        heads=heads,
        kv_heads=kv_heads,
        q=q,
        kv=kv,
        head=head,
        causal=_true(row["causal"]),
        backward=_true(row["backward"]),
        precision=row["precision"],  # type: ignore[arg-type]
    )


def _memory_bound(row: CsvRow) -> MemoryBound:
    return MemoryBound(name=row.get("name") or ANY, bytes=float(row["bytes"]))


def _true(text: str) -> bool:
    return {"true": True, "false": False}[text]


_KERNELS: dict[str, Callable[[CsvRow], Kernel]] = {
    "gemm": _gemm,
    "attention": _attention,
    "stream": _memory_bound,
}
