"""The history of the benchmarks' ratios: `history.csv`; `python -m benchmarks.history` draws it.

A ratio is of two figures of one run on one machine, ours over another's, so that it can be held
against those of other days. Below one ours is the smaller: of seconds the faster.
"""

import csv
import subprocess
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from matplotlib.figure import Figure

from sim.interface.plots.picture import PALETTE, save

HERE = Path(__file__).parent
HISTORY, PICTURE = HERE / "history.csv", HERE / "history.png"
HEADINGS = ("date", "commit", "name", "ratio")
_ACROSS = 3  # panels beside one another

Point = tuple[str, float]  # a date, a ratio


def append(ratios: Mapping[str, float], path: Path = HISTORY) -> None:
    """Add the ratios of a run."""
    date, commit = datetime.now(UTC).isoformat(timespec="minutes"), _commit()
    new = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(HEADINGS)
        writer.writerows((date, commit, name, f"{ratio:.4g}") for name, ratio in ratios.items())


def _commit() -> str:
    words = ("git", "-C", str(HERE), "rev-parse", "--short", "HEAD")
    said = subprocess.run(words, capture_output=True, text=True, check=False)
    return said.stdout.strip()


def read(path: Path = HISTORY) -> dict[str, list[Point]]:
    """The points of each name, in the order in which they were measured."""
    points: defaultdict[str, list[Point]] = defaultdict(list)
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            points[row["name"]].append((row["date"], float(row["ratio"])))
    return dict(points)


def figure(points: Mapping[str, list[Point]]) -> Figure:
    """A panel for each name: its last ratio of each day, on a logarithmic scale, one dotted."""
    names = list(points)
    down = -(-len(names) // _ACROSS)
    fig = Figure(figsize=(4.2 * _ACROSS, 2.2 * down), layout="constrained")
    panels = list(fig.subplots(down, _ACROSS, squeeze=False).flat)
    days = sorted({date[:10] for own in points.values() for date, _ in own})
    for axes, name in zip(panels, names, strict=False):
        last = {date[:10]: ratio for date, ratio in points[name]}  # of each day
        places, ratios = [days.index(day) for day in last], [*last.values()]
        axes.axhline(1.0, color=PALETTE[6], linewidth=0.8, linestyle=":")
        axes.plot(places, ratios, marker="o", color=PALETTE[0])
        axes.annotate(
            f"{ratios[-1]:.3g}", (places[-1], ratios[-1]), xytext=(0, 6),
            textcoords="offset points", ha="center", fontsize=9,
        )  # fmt: skip
        axes.set(yscale="log", ylim=(min(0.3, min(ratios) / 4), max(3.0, 4 * max(ratios))))
        axes.set(xlim=(-0.5, len(days) - 0.5), xticks=range(len(days)), xticklabels=days)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_formatter(lambda value, _: "")
        axes.tick_params(labelsize=8)
        axes.set_title(name, fontsize=9, loc="left")
        axes.spines[["right", "top"]].set_visible(False)
    for axes in panels[len(names) :]:
        axes.set_visible(False)
    title = "Ours / theirs, measured in one run: below the dotted line ours is smaller"
    fig.suptitle(title, x=0.01, ha="left", fontweight="bold")
    return fig


def main() -> None:
    save(figure(read()), PICTURE)
    print(f"wrote {PICTURE}")


if __name__ == "__main__":
    main()
