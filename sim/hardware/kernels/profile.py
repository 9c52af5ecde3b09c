"""A calibrated profile: kernel times measured on a device, as `sim calibrate kernels` writes them.

`topologies/profiles/NAME.toml` says which device was measured where, when and with what, the rates
that were fitted (`[rates]`, over those of the device's file), how smoothly measured and modelled
times differ (`[smoothness]`), how far the fit is from shapes that were kept out of it
(`[[residuals]]`), and what surrounds kernels (`sim.hardware.kernels.environment`). The measurements
lie beside it in a CSV, one kernel a row:

    kernel,name,variant,m,n,k,batch,heads,kv_heads,head,causal,backward,accumulate,precision,bytes,
    seconds,spread,kept_out

m and n are queries and keys of attention; `name` is the kind of a memory-bound kernel ("gelu",
"norm grad"; "stream" for any), `variant` which of a linear layer's three products a matrix product
is, and which generation of fused attention ran, `seconds` the median, `spread` the interquartile
range over it, `kept_out` whether the fit did not see it.
"""

import csv
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from sim.config import catalog as library
from sim.config.errors import InputError
from sim.hardware.kernels.curve import Curve
from sim.hardware.kernels.environment import Copy, Host, Slowdown, Surroundings
from sim.hardware.kernels.smoothness import Smoothness
from sim.model.kernels import Attention, Gemm, Kernel, Stream

FORMAT = 1
FOLDER = "topologies/profiles"
COLUMNS = (
    *("kernel", "name", "variant", "m", "n", "k", "batch", "heads", "kv_heads", "head", "causal"),
    *("backward", "accumulate", "precision", "bytes", "seconds", "spread", "kept_out"),
)
ANY = "stream"  # the kind of memory-bound kernel that stands for all that were not measured

Class = Literal["gemm", "attention", "stream"]
Row = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """How far the fit is from the kept-out shapes of a class of kernels.

    `median` and `p95` of |predicted / measured - 1|, `bias` the mean of predicted / measured - 1,
    `sigma` the standard deviation of log(measured / predicted).
    """

    kind: str
    shapes: int
    median: float
    p95: float
    bias: float
    sigma: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The content of a profile's TOML file; `measurements` is the CSV's name beside it."""

    format: int = FORMAT
    device: str
    measurements: str
    provenance: dict[str, str | int | float] = field(default_factory=dict)
    rates: dict[str, Any] = field(default_factory=dict)
    smoothness: dict[str, Smoothness] = field(default_factory=dict)
    residuals: tuple[Residual, ...] = ()
    host: Host | None = None
    copies: tuple[Copy, ...] = ()
    overlaps: tuple[Slowdown, ...] = ()

    def __post_init__(self) -> None:
        if self.format > FORMAT:
            what = f"format = {self.format} is newer than this program reads ({FORMAT})"
            raise ValueError(f"{what}; install a newer version, or calibrate again")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One kernel's median time (s) and its relative spread; kept out of the fit or not."""

    kernel: Kernel
    seconds: float
    spread: float = 0.0
    kept_out: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Measured kernels of a device."""

    origin: Origin
    measurements: tuple[Measurement, ...] = ()

    @property
    def surroundings(self) -> Surroundings:
        origin = self.origin
        return Surroundings(host=origin.host, copies=origin.copies, overlaps=origin.overlaps)

    def fitted(self, kind: Class) -> tuple[Measurement, ...]:
        """What the fit sees of a class of kernels."""
        return tuple(
            one for one in self.measurements if class_of(one.kernel) == kind and not one.kept_out
        )

    def curves(self) -> dict[str, Curve]:
        """Of memory-bound kernels: time against bytes, by kind."""
        points: dict[str, dict[float, float]] = {}
        for one in self.fitted("stream"):
            assert isinstance(one.kernel, Stream)
            points.setdefault(one.kernel.name, {})[one.kernel.bytes] = one.seconds
        return {name: Curve(tuple(sorted(found.items()))) for name, found in points.items()}


def rated(device: dict[str, Any], profile: Profile) -> dict[str, Any]:
    """A device's TOML document with the rates that its profile was fitted with.

    >>> origin = Origin(device="d", measurements="", rates={"gemm": {"floor": "3 us"}})
    >>> rated({"sms": 8, "gemm": {"floor": "2 us", "burst": 1.1}}, Profile(origin=origin))
    {'sms': 8, 'gemm': {'floor': '3 us', 'burst': 1.1}}
    """
    return _over(device, profile.origin.rates)


def _over(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        inner = merged.get(key)
        merged[key] = _over(inner, value) if isinstance(inner, dict) else value
    return merged


def class_of(kernel: Kernel) -> Class:
    if isinstance(kernel, Gemm):
        return "gemm"
    return "attention" if isinstance(kernel, Attention) else "stream"


def variant(gemm: Gemm) -> str:
    """Which of a linear layer's products it is: "forward", "dgrad" or "wgrad"; their operands lie
    differently in memory."""
    last = gemm.name.rpartition(" ")[2]
    return last if last in ("dgrad", "wgrad") else "forward"


def located(name: str, where: str) -> Path:
    """The file of a profile's name or path. Raises `InputError`."""
    return library.find(FOLDER, name, where=where)


@cache
def load(name: str, *, where: str = "command line") -> Profile:
    """The profile of a name in `topologies/profiles`, or of a path. Raises `InputError`."""
    path = located(name, where)
    origin = library.validate(library.read(path), Origin, library.place(path))
    measurements = tuple(read(path.parent / origin.measurements, path))
    samples = origin.provenance.get("samples", len(measurements))
    if samples != len(measurements):
        what = f"samples = {samples}, but {origin.measurements} has {len(measurements)} kernels"
        remedy = "take the CSV that the profile came with, or correct samples"
        raise InputError(library.place(path), what, remedy)
    return Profile(origin=origin, measurements=measurements)


def read(table: Path, owner: Path) -> Iterable[Measurement]:
    """The measurements of a CSV. Raises `InputError` naming the line that is wrong."""
    try:
        with table.open(encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(lines))
    except OSError as error:
        where, what = library.place(owner), f"{table.name} cannot be read ({error.strerror})"
        raise InputError(where, what, "keep the two files together") from None
    except (UnicodeDecodeError, csv.Error):
        what, remedy = "is no table of measured kernels", "take the CSV that the profile came with"
        raise InputError(library.place(table), what, remedy) from None
    for line, row in enumerate(rows, start=2):
        try:
            if None in row.values():
                raise ValueError("the line is cut short")
            yield measurement(row)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            what = f"is no measured kernel ({error})"
            remedy = "mend or remove the line"
            raise InputError(f"{library.place(table)}, line {line}", what, remedy) from None


def measurement(row: Row) -> Measurement:
    """A row of the CSV. Raises `ValueError` or `KeyError` where it is not one."""
    kernel = _KERNELS[row["kernel"]](row)
    seconds = float(row["seconds"])
    if not 0 < seconds < math.inf:
        raise ValueError(f"seconds = {seconds} must be positive")
    spread = float(row.get("spread") or 0.0)
    if not 0 <= spread < math.inf:
        raise ValueError(f"spread = {spread} must not be negative")
    kept_out = _true(row.get("kept_out", "false"))
    return Measurement(kernel=kernel, seconds=seconds, spread=spread, kept_out=kept_out)


def row(one: Measurement) -> dict[str, str]:
    """A measurement as a row of the CSV."""
    kernel = one.kernel
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
    if not isinstance(kernel, Stream):
        named["precision"] = kernel.precision
    named |= {"seconds": f"{one.seconds:.6g}", "spread": f"{one.spread:.3g}"}
    named["kept_out"] = one.kept_out
    return {key: _written(named.get(key, "")) for key in COLUMNS}


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _gemm(row: Row) -> Gemm:
    m, n, k, batch = (int(row[key]) for key in ("m", "n", "k", "batch"))
    return Gemm(
        name=row.get("variant") or "forward",
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


def _stream(row: Row) -> Stream:
    return Stream(name=row.get("name") or ANY, bytes=float(row["bytes"]))


def _true(text: str) -> bool:
    return {"true": True, "false": False}[text]


_KERNELS: dict[str, Callable[[Row], Kernel]] = {
    "gemm": _gemm,
    "attention": _attention,
    "stream": _stream,
}
