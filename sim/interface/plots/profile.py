"""Draw a device's profile: achieved rates, predictions of kernel times, and their errors.

Filled marks were kept out of the fit, hollow marks were fitted.
"""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from sim.config.grouped import grouped
from sim.hardware import device as devices
from sim.hardware.kernels.measurements import class_of
from sim.hardware.kernels.profile import Profile
from sim.hardware.kernels.residuals import (
    ClassErrors,
    KernelPrediction,
    errors_by_class,
    predictions,
)
from sim.hardware.kernels.shape_classes import ShapeErrors, errors_by_shape, packaged
from sim.interface.plots.picture import PALETTE, Figure
from sim.interface.views.profile import heading
from sim.model.kernels import MemoryBound

_MARKERS = {"gemm": "o", "attention": "^", "stream": "s"}
_WORST = 100.0  # %; larger errors are drawn at this value
_CURVES = 7  # kinds of memory-bound kernels that are drawn


def figure(profile: Profile, name: str) -> Figure:
    """Draw rates and bandwidths above, predictions and their errors below."""
    rows = predictions(profile)
    classes = errors_by_class(profile, rows)
    colours = {line.group: PALETTE[n % len(PALETTE)] for n, line in enumerate(classes)}
    fig = Figure(figsize=(19.0, 9.5), layout="constrained")
    fig.suptitle(heading(profile, name), fontsize=13)
    (rates, curves, unrefined), (against, errors, by_shape) = fig.subplots(2, 3)
    _rates(rates, rows, classes, colours)
    _curves(curves, rows, classes)
    _against(against, rows, colours)
    _errors(errors, rows, classes, colours)
    _packaged(unrefined, profile, rows, colours)
    _by_shape(by_shape, errors_by_shape(profile))
    return fig


def _rates(
    axes: Axes, rows: Sequence[KernelPrediction], classes: Sequence[ClassErrors], colours: Any
) -> None:
    """Draw achieved FLOP/s against FLOPs, with the peak of each precision."""
    for line in classes:
        shown = [row for row in _of(rows, line.group) if not _memory_bound(row)]
        if shown:
            work = [row.measured.kernel.flops for row in shown]
            _scatter(axes, work, [row.rate for row in shown], shown, colours[line.group])
    shared = grouped((line.peak, line.group) for line in classes if line.group != "stream")
    for peak, groups in shared.items():
        axes.axhline(peak, color=colours[groups[0]], linewidth=1, linestyle="--")
        label = "peak " + ", ".join(dict.fromkeys(group.split()[1] for group in groups))
        axes.annotate(label, (0.01, peak), xycoords=("axes fraction", "data"), va="bottom")
    _logarithmic(axes, "Achieved against peak", "FLOPs of the kernel", "FLOP/s")
    axes.margins(y=0.12)


def _curves(axes: Axes, rows: Sequence[KernelPrediction], classes: Sequence[ClassErrors]) -> None:
    """Draw the bandwidth of memory-bound kernels against bytes, for at most seven kinds from slow
    to fast."""
    kinds = grouped((row.measured.kernel.name, row) for row in filter(_memory_bound, rows))
    slowest = sorted(kinds, key=lambda kind: min(row.rate for row in kinds[kind][-2:]))
    step = max(1, len(slowest) // _CURVES)
    for colour, kind in zip(PALETTE, slowest[::step], strict=False):
        shown = sorted(kinds[kind], key=lambda row: row.measured.kernel.bytes)
        sizes = [row.measured.kernel.bytes for row in shown]
        axes.plot(sizes, [row.rate for row in shown], "o-", color=colour, ms=4, lw=1, label=kind)
    for line in classes:
        if line.group == "stream":
            axes.axhline(line.peak, color="0.4", linewidth=1, linestyle="--", label="memory")
    _logarithmic(axes, "Memory-bound kernels", "bytes moved", "B/s")
    if kinds:
        axes.legend(fontsize=8)


def _against(axes: Axes, rows: Sequence[KernelPrediction], colours: Any) -> None:
    """Draw predicted against measured times; exact predictions lie on the line."""
    for group, colour in colours.items():
        shown = _of(rows, group)
        times = [row.measured.seconds for row in shown]
        _scatter(axes, times, [row.predicted for row in shown], shown, colour, label=group)
    times = [row.measured.seconds for row in rows]
    ends = (min(times), max(times))
    axes.plot(ends, ends, color="0.3", linewidth=1)
    _logarithmic(axes, "Predicted against measured", "measured seconds", "predicted seconds")
    axes.legend(fontsize=8)


def _errors(
    axes: Axes, rows: Sequence[KernelPrediction], classes: Sequence[ClassErrors], colours: Any
) -> None:
    """Draw predicted / measured - 1 of kernels kept out of the fit, against their time; errors
    beyond 100 % are drawn at the edge."""
    for line in classes:
        shown = [row for row in _of(rows, line.group) if row.measured.kept_out]
        if shown:
            label = f"{line.group}: {len(shown)}, median {line.median:.1%}, bias {line.bias:+.1%}"
            times = [row.measured.seconds for row in shown]
            values = [max(-_WORST, min(_WORST, 100.0 * row.error)) for row in shown]
            _scatter(axes, times, values, shown, colours[line.group], label=label)
    title = "Errors where kept out of the fit"
    _logarithmic(axes, title, "measured seconds", "error, %", scale="linear")
    axes.axhline(0.0, color="0.3", linewidth=1)
    if any(line.kept_out for line in classes):
        axes.legend(fontsize=8)


def _packaged(axes: Axes, profile: Profile, rows: Sequence[KernelPrediction], colours: Any) -> None:
    """Draw the errors of all kernels as predicted by the device's file, without the profile."""
    device = devices.load(profile.origin.device)
    for group, colour in colours.items():
        shown = _of(rows, group)
        values = [100.0 * max(-1.0, min(1.0, packaged(row, device))) for row in shown]
        times = [row.measured.seconds for row in shown]
        _scatter(axes, times, values, shown, colour, label=f"{group}: {len(shown)}")
    title = f"Errors of {profile.origin.device} without this profile"
    _logarithmic(axes, title, "measured seconds", "error, %", scale="linear")
    axes.axhline(0.0, color="0.3", linewidth=1)
    axes.legend(fontsize=8)


def _by_shape(axes: Axes, shapes: Sequence[ShapeErrors]) -> None:
    """Draw the device file's errors by class of shapes; boxes hold the middle half."""
    axes.set_title("The same by shape, above 20 us", fontsize=11)
    if not shapes:
        axes.annotate("none measured", (0.5, 0.5), xycoords="axes fraction", ha="center")
        return
    values = [[100.0 * error for error in line.packaged] for line in reversed(shapes)]
    axes.boxplot(values, orientation="horizontal", whis=(5, 95), showfliers=False)
    names = [f"{line.name.strip()} ({len(line.packaged)})" for line in reversed(shapes)]
    axes.set_yticks(range(1, len(names) + 1), names, fontsize=8)
    axes.axvline(0.0, color="0.3", linewidth=1)
    axes.set_xlabel("error, %; whiskers at the 5th and 95th percentile")
    axes.grid(alpha=0.25)


def _scatter(
    axes: Axes, xs: Sequence[float], ys: Sequence[float], rows: Sequence[KernelPrediction],
    colour: str, label: str | None = None,
) -> None:  # fmt: skip
    marker = _MARKERS[class_of(rows[0].measured.kernel)]
    for kept_out, face in ((False, "none"), (True, colour)):
        shown = [
            (x, y)
            for x, y, row in zip(xs, ys, rows, strict=True)
            if row.measured.kept_out == kept_out
        ]
        axes.scatter(
            [x for x, _ in shown],
            [y for _, y in shown],
            s=16,
            marker=marker,
            facecolors=face,
            edgecolors=colour,
            linewidths=0.8,
            alpha=0.8,
        )
    if label:
        axes.scatter([], [], s=16, marker=marker, color=colour, label=label)


def _logarithmic(axes: Axes, title: str, across: str, up: str, scale: str = "log") -> None:
    axes.set_title(title, fontsize=11)
    if not axes.has_data():
        axes.annotate("none measured", (0.5, 0.5), xycoords="axes fraction", ha="center")
        return
    axes.set_xscale("log")
    axes.set_yscale(scale)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.grid(alpha=0.25)


def _of(rows: Sequence[KernelPrediction], group: str) -> list[KernelPrediction]:
    return [row for row in rows if row.group == group]


def _memory_bound(row: KernelPrediction) -> bool:
    return isinstance(row.measured.kernel, MemoryBound)
