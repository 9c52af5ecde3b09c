"""A profile as a few lines of text: what was measured, how well it is predicted."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import get_args

from sim.config import catalog
from sim.config.errors import InputError
from sim.config.units import human_bytes, human_rate, human_seconds
from sim.hardware.kernels.dispatch import VIEW, OperatorTime, Phase
from sim.hardware.kernels.environment import CopyTime, Environment
from sim.hardware.kernels.profile import FOLDER, Profile
from sim.hardware.kernels.residuals import (
    ClassErrors,
    KernelPrediction,
    errors_by_class,
    predictions,
)
from sim.hardware.kernels.shape_classes import LONG, ShapeErrors, errors_by_shape, summary
from sim.model.kernels import MemoryBound
from sim.results.tables import Cells

_COLUMNS = ("", "shapes", "kept out", "median", "p95", "bias", "covered", "best", "of peak")


def describe(profile: Profile, name: str) -> str:
    """Provenance, errors by class of kernels, the rate of each kind of memory-bound kernel."""
    rows = predictions(profile)
    parts = [
        heading(profile, name),
        *_provenance(profile),
        "",
        *_errors(errors_by_class(profile, rows)),
        *_shapes(profile),
    ]
    kinds = list(_kinds(rows))
    if kinds:
        parts += ["", "Memory-bound kernels, at their largest", *kinds]
    around = [*_environment(profile.environment), *_host(profile.operators)]
    if around:
        parts += ["", "Around them", *around]
    return "\n".join(parts)


def is_profile(name: str) -> bool:
    """Whether a name or path is that of a device's profile.

    >>> is_profile("dgx-a100-hdr")
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
    stated = {key: text for key, text in profile.origin.provenance.items() if text not in ("", 0)}
    width = max(map(len, stated), default=0)
    for key, value in stated.items():
        yield f"  {key:{width}}  {value}"


def _shapes(profile: Profile) -> Iterator[str]:
    """Above 20 us: the errors of the device's file and, where kept out, of the profile."""
    if shapes := errors_by_shape(profile):
        yield ""
        yield f"Above {human_seconds(LONG)}, by shape: the device's file, and this profile kept out"
        yield from _aligned([_SHAPE_COLUMNS, *map(_shape_cells, shapes)])


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


def _errors(classes: Sequence[ClassErrors]) -> Iterator[str]:
    yield from _aligned([_COLUMNS, *map(_cells, classes)])


def _aligned(table: Sequence[Cells]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for row in table:
        first, *rest = (
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(["", first, *rest]).rstrip()


def _cells(line: ClassErrors) -> Cells:
    rate = human_rate(line.best, "B/s" if line.group == "stream" else "FLOP/s")
    errors = (f"{line.median:.1%}", f"{line.p95:.1%}", f"{line.bias:+.1%}")
    if not line.kept_out:
        errors = ("", "", "")
    covered = "" if line.coverage is None else f"{line.coverage:.0%}"
    share = f"{line.best / line.peak:.0%}"
    return (line.group, str(line.shapes), str(line.kept_out), *errors, covered, rate, share)


def _kinds(rows: Sequence[KernelPrediction]) -> Iterator[str]:
    largest: dict[str, KernelPrediction] = {}
    for row in rows:
        kernel = row.measured.kernel
        if isinstance(kernel, MemoryBound):
            so_far = largest.get(kernel.name)
            if so_far is None or kernel.bytes > so_far.measured.kernel.bytes:
                largest[kernel.name] = row
    width = max(map(len, largest), default=0)
    for name, row in largest.items():
        size = human_bytes(row.measured.kernel.bytes)
        yield f"  {name:{width}}  {human_rate(row.rate, 'B/s'):>10} at {size}"


def _environment(environment: Environment) -> Iterator[str]:
    """Launches, the largest copy of each kind, and slowdowns."""
    if environment.host is not None:
        host = environment.host
        parts = [
            f"{human_seconds(host.issue)} each",
            f"{human_seconds(host.latency)} there and back",
        ]
        parts += [f"{human_seconds(host.node)} a node of a graph"] if host.node else []
        yield f"  {'launches':12}  {', '.join(parts)}"
    for copy in _largest(environment.copies):
        kind = f"{copy.kind}{', pinned' if copy.pinned else ''}"
        rate, size = human_rate(copy.bandwidth, "B/s"), human_bytes(copy.bytes)
        yield f"  {'copies':12}  {kind}, {rate} at {size}"
    for overlap in environment.overlaps:
        beside = f"beside {overlap.beside}"
        yield f"  {beside:12}  {overlap.kernel} {overlap.slowdown:.2f} times as long"


def _host(operators: Sequence[OperatorTime]) -> Iterator[str]:
    """How long operators take the host, by phase."""
    for phase in get_args(Phase):
        own = {one.operator: one.seconds for one in operators if one.phase == phase}
        views = f", a view {human_seconds(own.pop(VIEW))}" if VIEW in own else ""
        if own:
            typical = f"{human_seconds(median(own.values()))} each in the median{views}"
            yield f"  {phase:12}  {len(own)} operators, the host {typical}"


def _largest(copies: Sequence[CopyTime]) -> list[CopyTime]:
    largest: dict[tuple[str, bool], CopyTime] = {}
    for copy in sorted(copies, key=lambda copy: copy.bytes):
        largest[copy.kind, copy.pinned] = copy
    return list(largest.values())
