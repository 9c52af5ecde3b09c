"""Show a device's profile in a few lines: its measured kernels and the errors of predictions."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import get_args

from sim.config import catalog
from sim.config.errors import InputError
from sim.config.readable import human_bytes, human_rate, human_seconds
from sim.hardware.kernels.dispatch import VIEW, Phase
from sim.hardware.kernels.environment import CopyTime, Environment
from sim.hardware.kernels.profile import FOLDER, Profile
from sim.hardware.kernels.residuals import (
    ClassErrors,
    KernelPrediction,
    errors_by_class,
    predictions,
)
from sim.hardware.kernels.shape_classes import LONG, ShapeErrors, errors_by_shape, summary
from sim.interface.document.nodes import Document, document, section, table
from sim.model.kernels import MemoryBound
from sim.results.formatting import Cells

_COLUMNS = ("", "shapes", "kept out", "median", "p95", "bias", "covered", "best", "of peak")


def view(profile: Profile, name: str) -> Document:
    """Show a profile's provenance, errors by class of kernels, rates of memory-bound kernels, and
    the times of launches, copies and operators on the host."""
    rows = predictions(profile)
    kinds, around = list(_kinds(rows)), [*_environment(profile.environment), *_host(profile)]
    classes, shapes = errors_by_class(profile, rows), errors_by_shape(profile)
    long = (
        f"Errors above {human_seconds(LONG)} by shape: first with the device's file, then with "
        "this profile"
    )
    return document(
        heading(profile, name),
        table(_provenance(profile)),
        section("", table(map(_cells, classes), _COLUMNS)),
        section(long, table(map(_shape_cells, shapes), _SHAPE_COLUMNS)) if shapes else None,
        section("Memory-bound kernels, at the largest size", table(kinds)) if kinds else None,
        section("Around them", table(around)) if around else None,
    )


def is_profile(name: str) -> bool:
    """Whether a name or path is a device's profile.

    >>> is_profile("dgx-a100-hdr")
    False
    """
    try:
        path = catalog.find(FOLDER, name)
    except InputError:
        return False
    return "measurements" in catalog.read(path)


def heading(profile: Profile, name: str) -> str:
    """Return the name of a profile, its number of kernels and its device."""
    count = len(profile.measurements)
    return f"{name}: {count:,} kernels on {profile.origin.device}"


def _provenance(profile: Profile) -> Iterator[Cells]:
    for key, value in profile.origin.provenance.items():
        if value not in ("", 0):
            yield key, str(value)


_SHAPE_COLUMNS = ("", "shapes", *("median", "p95", "bias"), "kept out", *("median", "p95", "bias"))


def _shape_cells(line: ShapeErrors) -> Cells:
    kept_out = str(len(line.kept_out))
    return (
        line.name, str(len(line.packaged)), *_summed(line.packaged), kept_out,
        *_summed(line.kept_out),
    )  # fmt: skip


def _summed(errors: Sequence[float]) -> tuple[str, ...]:
    if not errors:
        return ("", "", "")
    median, p95, bias = summary(errors)
    return (f"{median:.1%}", f"{p95:.1%}", f"{bias:+.1%}")


def _cells(line: ClassErrors) -> Cells:
    rate = human_rate(line.best, "B/s" if line.group == "stream" else "FLOP/s")
    errors = (f"{line.median:.1%}", f"{line.p95:.1%}", f"{line.bias:+.1%}")
    if not line.kept_out:
        errors = ("", "", "")
    covered = "" if line.coverage is None else f"{line.coverage:.0%}"
    share = f"{line.best / line.peak:.0%}"
    return (line.group, str(line.shapes), str(line.kept_out), *errors, covered, rate, share)


def _kinds(rows: Sequence[KernelPrediction]) -> Iterator[Cells]:
    largest: dict[str, KernelPrediction] = {}
    for row in rows:
        kernel = row.measured.kernel
        if isinstance(kernel, MemoryBound):
            so_far = largest.get(kernel.name)
            if so_far is None or kernel.bytes > so_far.measured.kernel.bytes:
                largest[kernel.name] = row
    for name, row in largest.items():
        size = human_bytes(row.measured.kernel.bytes)
        yield name, f"{human_rate(row.rate, 'B/s')} at {size}"


def _environment(environment: Environment) -> Iterator[Cells]:
    """Yield the times of launches, the largest copy of each kind, and the slowdowns of kernels
    that run beside other work."""
    if environment.host is not None:
        host = environment.host
        parts = [
            f"{human_seconds(host.issue)} each",
            f"{human_seconds(host.latency)} there and back",
        ]
        parts += [f"{human_seconds(host.node)} a node of a graph"] if host.node else []
        yield "launches", ", ".join(parts)
    for copy in _largest(environment.copies):
        kind = f"{copy.kind}{', pinned' if copy.pinned else ''}"
        rate, size = human_rate(copy.bandwidth, "B/s"), human_bytes(copy.bytes)
        yield "copies", f"{kind}, {rate} at {size}"
    for overlap in environment.overlaps:
        yield f"beside {overlap.beside}", f"{overlap.kernel} {overlap.slowdown:.2f} times as long"


def _host(profile: Profile) -> Iterator[Cells]:
    """Yield the host's time for operators, by phase."""
    for phase in get_args(Phase):
        seconds = {
            operator.operator: operator.seconds
            for operator in profile.operators
            if operator.phase == phase
        }
        views = f", a view {human_seconds(seconds.pop(VIEW))}" if VIEW in seconds else ""
        if seconds:
            typical = f"{human_seconds(median(seconds.values()))} each (median){views}"
            yield phase, f"{len(seconds)} operators, on the host {typical}"


def _largest(copies: Sequence[CopyTime]) -> list[CopyTime]:
    largest: dict[tuple[str, bool], CopyTime] = {}
    for copy in sorted(copies, key=lambda copy: copy.bytes):
        largest[copy.kind, copy.pinned] = copy
    return list(largest.values())
