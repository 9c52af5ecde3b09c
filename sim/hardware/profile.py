"""A calibrated profile: kernel times measured on a device, which kernel times prefer to a model.

`topologies/profiles/NAME.toml` says where, when and with what it was measured; the measurements lie
beside it in a CSV, one kernel a row:

    kernel,m,n,k,batch,heads,kv_heads,head,causal,backward,accumulate,precision,bytes,seconds,spread
    gemm,4096,4096,4096,1,,,,,,false,bf16,,2.11e-4,0.012
    attention,4096,4096,,1,32,8,128,true,false,,bf16,,3.9e-4,0.008
    stream,,,,,,,,,,,,33554432,2.6e-5,0.02

m and n are queries and keys of attention; `seconds` the median, `spread` the interquartile range
over it. Products and attention are taken where their very shape was measured; memory-bound kernels
are interpolated between measured sizes. For anything else a profile has no time.
"""

import csv
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from sim import library
from sim.errors import InputError
from sim.model.kernel import Attention, Gemm, Kernel, Stream

Key = tuple[str | int | bool, ...]
Row = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The content of a profile's TOML file; `measurements` is the CSV's name beside it."""

    device: str
    measurements: str
    date: str
    driver: str
    library: str
    samples: int

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ValueError(f"samples = {self.samples} must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Measured seconds by kernel: of exact shapes, and of memory-bound kernels by bytes."""

    origin: Origin
    shapes: Mapping[Key, float] = field(default_factory=dict)
    streams: tuple[tuple[float, float], ...] = ()

    def time(self, kernel: Kernel) -> float | None:
        """Seconds of a kernel, or None where it lies outside of what was measured."""
        if isinstance(kernel, Stream):
            return self._stream(kernel)
        return self.shapes.get(_key(kernel))

    def _stream(self, kernel: Stream) -> float | None:
        """Between two measured sizes, linearly in the logarithms of bytes and seconds."""
        size = kernel.bytes / kernel.launches
        sizes = [measured for measured, _ in self.streams]
        if not sizes or not sizes[0] <= size <= sizes[-1]:
            return None
        right = max(1, bisect_left(sizes, size))
        (b0, t0), (b1, t1) = self.streams[right - 1], self.streams[right]
        share = math.log(size / b0) / math.log(b1 / b0)
        return float(kernel.launches * t0 * (t1 / t0) ** share)


def _key(kernel: Gemm | Attention) -> Key:
    if isinstance(kernel, Gemm):
        shape = (kernel.m, kernel.n, kernel.k, kernel.batch)
        return ("gemm", *shape, kernel.precision, kernel.accumulate)
    heads = (kernel.batch, kernel.heads, kernel.kv_heads, kernel.head)
    size = (kernel.q, kernel.kv)
    return ("attention", *size, *heads, kernel.precision, kernel.causal, kernel.backward)


@cache
def load(name: str, *, where: str = "command line") -> Profile:
    """The profile of a name in `topologies/profiles`. Raises `InputError`."""
    path = library.find("topologies/profiles", name, where=where)
    origin = library.validate(library.read(path), Origin, str(path))
    table = path.parent / origin.measurements
    try:
        with table.open(encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(lines))
    except OSError as error:
        raise InputError(str(path), f"{table.name} cannot be read ({error.strerror})") from None
    return read(rows, origin, table)


def read(rows: Iterable[Row], origin: Origin, table: Path) -> Profile:
    """A profile of rows as in its CSV. Raises `InputError` naming the line that is wrong."""
    shapes: dict[Key, float] = {}
    streams: dict[float, float] = {}
    for line, row in enumerate(rows, start=2):
        try:
            kernel = _KERNELS[row["kernel"]](row)
            seconds = float(row["seconds"])
            if not 0 < seconds < math.inf:
                raise ValueError(f"seconds = {seconds} must be positive")
        except (KeyError, ValueError, TypeError) as error:
            what = f"is no measured kernel ({error})"
            raise InputError(f"{table}, line {line}", what, "mend the line") from None
        if isinstance(kernel, Stream):
            streams[kernel.bytes] = seconds
        else:
            shapes[_key(kernel)] = seconds
    return Profile(origin=origin, shapes=shapes, streams=tuple(sorted(streams.items())))


def _gemm(row: Row) -> Gemm:
    m, n, k, batch = (int(row[key]) for key in ("m", "n", "k", "batch"))
    return Gemm(
        name="",
        m=m,
        n=n,
        k=k,
        batch=batch,
        precision=row["precision"],  # type: ignore[arg-type]  # an unknown one is never asked for
        accumulate=_true(row["accumulate"]),
    )


def _attention(row: Row) -> Attention:
    keys = ("m", "n", "batch", "heads", "kv_heads", "head")
    q, kv, batch, heads, kv_heads, head = (int(row[key]) for key in keys)
    return Attention(
        name="",
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


def _stream(row: Row) -> Stream:
    return Stream(name="", bytes=float(row["bytes"]))


def _true(text: str) -> bool:
    return {"true": True, "false": False}[text]


_KERNELS: dict[str, Callable[[Row], Kernel]] = {
    "gemm": _gemm,
    "attention": _attention,
    "stream": _stream,
}
