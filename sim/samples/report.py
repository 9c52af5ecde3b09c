"""Straggler samples for people: a page of text, and a picture."""

from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.config.files import atomic_write
from sim.config.units import human_seconds
from sim.results.text import bar, count, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from sim.samples.samples import Samples

_BLUE, _ORANGE, _DARK = "#0072b2", "#e69f00", "0.25"
_WIDTH, _DPI = 11.0, 150  # inches, dots an inch


def text(found: "Samples") -> str:
    """The distribution, where the loss comes from, which ranks matter, what removal gains."""
    blocks = [
        [f"{found.scenario} on {count(found.ranks)} GPUs, {count(found.samples)} steps sampled, "
         f"seed {found.seed}", *_distribution(found)],
        ["Mean loss by where ranks wait", *_losses(found.by_meeting, found)],
        ["Mean loss by cause", *_losses(found.by_cause, found)],
        ["What a step loses when one tensor-parallel group is 10 % slower", *_sensitivity(found)],
        [_removal_title(found), *_removal(found)],
        [f"Sampled in {human_seconds(found.wall_seconds)}.",
         *(f"note: {note}" for note in found.notes)],
    ]  # fmt: skip
    return "\n\n".join("\n".join(block) for block in blocks)


def _distribution(found: "Samples") -> Iterable[str]:
    rows = [("without stragglers", found.healthy), ("mean", found.mean)]
    rows += [
        (name, found.quantile(q)) for name, q in (("median", 0.5), ("p95", 0.95), ("p99", 0.99))
    ]
    for name, seconds in rows:
        more = "" if seconds == found.healthy else f"  {seconds / found.healthy - 1.0:+.2%}"
        yield f"  {name:<18}  {seconds:.3f} s{more}"


def _losses(parts: dict[str, float], found: "Samples") -> Iterable[str]:
    width, most = max(map(len, parts)), max([*parts.values(), 1e-12])
    for name, seconds in parts.items():
        line = (
            f"  {name:<{width}}  {human_seconds(seconds):>8}  {percent(seconds / found.healthy):>6}"
        )
        yield f"{line}  {bar(max(seconds, 0.0) / most)}".rstrip()


def _sensitivity(found: "Samples") -> Iterable[str]:
    """Neighbouring stages that print alike share a line."""
    rows = [(f"{human_seconds(row['seconds']):>8}  {percent(0.1 * row['share']):>6}", row)
            for row in found.sensitivity]  # fmt: skip
    most = max(max(row["seconds"] for _, row in rows), 1e-12)
    first = 0
    for last, (words, row) in enumerate(rows):
        if last + 1 < len(rows) and rows[last + 1][0] == words:
            continue
        name = f"stage {first}" if first == last else f"stages {first} to {last}"
        yield f"  {name:<15}  {words}  {bar(row['seconds'] / most)}"
        first = last + 1


def _removal_title(found: "Samples") -> str:
    closer = "" if found.closer == found.samples else f" (on {found.closer} of the steps)"
    return f"With the slowest nodes replaced by ordinary ones{closer}"


def _removal(found: "Samples") -> Iterable[str]:
    for row in found.removed:
        gain = row["gain"] / found.healthy
        words = "as it is" if not row["nodes"] else f"{row['nodes']:.0f} replaced"
        yield f"  {words:<12}  {row['mean']:.3f} s" + (f"  {-gain:+.2%}" if row["nodes"] else "")


# --- The picture ----------------------------------------------------------------------------------


def draw(found: "Samples", path: Path) -> None:
    """Draw the distribution and the heat map into a PNG or SVG file, whole or not at all."""
    with atomic_write(path) as part:
        part.write_bytes(render(found, path.suffix.removeprefix(".")))


def render(found: "Samples", kind: str = "png") -> bytes:
    """The picture as the bytes of a "png" or "svg" file, the same for the same samples."""
    import matplotlib as mpl

    buffer = BytesIO()
    metadata: dict[str, Any] = {"Date": None} if kind == "svg" else {"Software": None}
    with mpl.rc_context({"svg.hashsalt": "sim", "svg.fonttype": "none"}):
        figure(found).savefig(buffer, format=kind, dpi=_DPI, metadata=metadata)
    return buffer.getvalue()


def figure(found: "Samples") -> "Figure":
    """Step times as a histogram, losses beside it, seconds owed by stage and replica below."""
    from matplotlib.figure import Figure

    fig = Figure(figsize=(_WIDTH, 7.4), layout="constrained")
    fig.suptitle(
        f"{found.scenario}: {count(found.samples)} steps on {count(found.ranks)} GPUs, "
        "every rank at a pace of its own"
    )
    grid = fig.add_gridspec(2, 2, height_ratios=(1.0, 1.0), width_ratios=(1.15, 1.0))
    _histogram(fig.add_subplot(grid[0, 0]), found)
    _bars(fig.add_subplot(grid[0, 1]), found)
    _heat(fig, fig.add_subplot(grid[1, :]), found)
    return fig


def _histogram(axes: "Axes", found: "Samples") -> None:
    """Step times up to half as far again as p99; how many lie beyond is said."""
    bins = min(60, max(8, found.samples // 15))
    end = found.healthy + 1.5 * (found.quantile(0.99) - found.healthy)
    times, spread = found.step_times, max(end - found.healthy, 1e-9)
    axes.hist(times[times <= end], bins=bins, color=_BLUE, alpha=0.85)
    axes.axvline(found.healthy, color=_DARK, linewidth=1.5)
    low, high = axes.get_ylim()
    axes.text(found.healthy, high, " no stragglers", va="top", color=_DARK, fontsize=8)
    for name, share, height in (("median", 0.5, 0.92), ("p95", 0.95, 0.82), ("p99", 0.99, 0.72)):
        at = found.quantile(share)
        axes.axvline(at, color=_ORANGE, linewidth=1.2)
        label = f" {name} {at:.3f} s"
        axes.text(at, low + height * (high - low), label, color=_DARK, fontsize=8)
    axes.set_xlim(found.healthy - 0.06 * spread, end)
    beyond = int((times > end).sum())
    more = f"; {beyond} beyond, up to {times.max():.3f} s" if beyond else ""
    axes.set_xlabel(f"step time (s){more}")
    axes.set_ylabel("steps")
    _plain(axes)


def _bars(axes: "Axes", found: "Samples") -> None:
    parts = [(name, seconds, _BLUE) for name, seconds in found.by_meeting.items()]
    parts += [(f"cause: {name}", seconds, _ORANGE) for name, seconds in found.by_cause.items()]
    labels = [name for name, _, _ in parts]
    widths = [1e3 * seconds for _, seconds, _ in parts]
    axes.barh(range(len(parts)), widths, color=[colour for *_, colour in parts], height=0.65)
    for row, width in enumerate(widths):
        axes.text(max(width, 0.0), row, f" {width:.1f} ms", va="center", fontsize=8, color=_DARK)
    axes.set_yticks(range(len(parts)), labels, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(min(0.0, *widths), 1.25 * max(*widths, 1e-9))
    axes.set_xlabel("mean loss a step (ms): by wait (blue), by cause (orange)")
    _plain(axes)


def _heat(fig: "Figure", axes: "Axes", found: "Samples") -> None:
    owed = 1e3 * found.owed
    top = float(np.quantile(owed, 0.999)) or float(owed.max()) or 1.0
    image = axes.imshow(owed, aspect="auto", cmap="cividis", vmin=0.0, vmax=top,
                        interpolation="nearest", origin="lower")  # fmt: skip
    fig.colorbar(image, ax=axes, label="ms of the mean step", pad=0.01)
    axes.set_xlabel("replica")
    axes.set_ylabel("stage")
    axes.set_title(
        "What each tensor-parallel group costs the mean step: in every step the last replica's "
        "groups share its loss", fontsize=9,
    )  # fmt: skip
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))


def _plain(axes: "Axes") -> None:
    axes.spines[["top", "right"]].set_visible(False)
