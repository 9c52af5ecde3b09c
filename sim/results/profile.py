"""A profile as a few lines of text: what was measured, how well it is predicted."""

from collections.abc import Iterator, Sequence

from sim.config import catalog
from sim.config.errors import InputError
from sim.config.units import human_bytes, human_rate, human_seconds
from sim.hardware.kernels.environment import CopyTime, Environment
from sim.hardware.kernels.profile import FOLDER, Profile
from sim.hardware.kernels.residuals import (
    ClassErrors,
    KernelPrediction,
    errors_by_class,
    predictions,
)
from sim.model.kernels import MemoryBound

_COLUMNS = ("", "shapes", "kept out", "median", "p95", "bias", "covered", "best", "of peak")


def describe(profile: Profile, name: str) -> str:
    """Provenance, errors by class of kernels, the rate of each kind of memory-bound kernel."""
    rows = predictions(profile)
    parts = [
        heading(profile, name),
        *_provenance(profile),
        "",
        *_errors(errors_by_class(profile, rows)),
    ]
    kinds = list(_kinds(rows))
    if kinds:
        parts += ["", "Memory-bound kernels, at their largest", *kinds]
    around = list(_around(profile.environment))
    if around:
        parts += ["", "Around them", *around]
    return "\n".join(parts)


def is_one(name: str) -> bool:
    """Whether a name, or a path, is that of a device's profile.

    >>> is_one("dgx-a100-hdr")
    False
    """
    try:
        path = catalog.find(FOLDER, name)
    except InputError:
        return False
    return "measurements" in catalog.read(path)


def heading(profile: Profile, name: str) -> str:
    """The name of a profile and what it is of."""
    count = len(profile.measurements)
    return f"{name}: {count:,} kernels on {profile.origin.device}"


def _provenance(profile: Profile) -> Iterator[str]:
    known = {key: value for key, value in profile.origin.provenance.items() if value not in ("", 0)}
    width = max(map(len, known), default=0)
    for key, value in known.items():
        yield f"  {key:{width}}  {value}"


def _errors(found: Sequence[ClassErrors]) -> Iterator[str]:
    table = [_COLUMNS, *(_cells(one) for one in found)]
    widths = [max(len(row[column]) for row in table) for column in range(len(_COLUMNS))]
    for row in table:
        first, *rest = (
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(["", first, *rest]).rstrip()


def _cells(one: ClassErrors) -> tuple[str, ...]:
    rate = human_rate(one.best, "B/s" if one.group == "stream" else "FLOP/s")
    errors = (f"{one.median:.1%}", f"{one.p95:.1%}", f"{one.bias:+.1%}")
    if not one.kept_out:
        errors = ("", "", "")
    covered = "" if one.coverage is None else f"{one.coverage:.0%}"
    share = f"{one.best / one.peak:.0%}"
    return (one.group, str(one.shapes), str(one.kept_out), *errors, covered, rate, share)


def _kinds(rows: Sequence[KernelPrediction]) -> Iterator[str]:
    largest: dict[str, KernelPrediction] = {}
    for row in rows:
        kernel = row.measured.kernel
        if isinstance(kernel, MemoryBound):
            known = largest.get(kernel.name)
            if known is None or kernel.bytes > known.measured.kernel.bytes:
                largest[kernel.name] = row
    width = max(map(len, largest), default=0)
    for name, row in largest.items():
        size = human_bytes(row.measured.kernel.bytes)
        yield f"  {name:{width}}  {human_rate(row.rate, 'B/s'):>10} at {size}"


def _around(found: Environment) -> Iterator[str]:
    """Launches, the largest copy of each kind, and slowdowns."""
    if found.host is not None:
        host = found.host
        parts = [
            f"{human_seconds(host.issue)} each",
            f"{human_seconds(host.latency)} there and back",
        ]
        parts += [f"{human_seconds(host.node)} a node of a graph"] if host.node else []
        yield f"  {'launches':12}  {', '.join(parts)}"
    for copy in _largest(found.copies):
        kind = f"{copy.kind}{', pinned' if copy.pinned else ''}"
        rate, size = human_rate(copy.bandwidth, "B/s"), human_bytes(copy.bytes)
        yield f"  {'copies':12}  {kind}, {rate} at {size}"
    for one in found.overlaps:
        yield f"  {'beside ' + one.beside:12}  {one.kernel} {one.slowdown:.2f} times as long"


def _largest(copies: Sequence[CopyTime]) -> list[CopyTime]:
    found: dict[tuple[str, bool], CopyTime] = {}
    for one in sorted(copies, key=lambda copy: copy.bytes):
        found[one.kind, one.pinned] = one
    return list(found.values())
