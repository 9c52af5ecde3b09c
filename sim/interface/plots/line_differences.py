"""Lines of a script by the seconds that they cost more or less."""

from typing import TYPE_CHECKING

from sim.analysis.comparison.lines import LineDifferences

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST = 12  # lines


def figure(answer: LineDifferences) -> "Figure":
    """A bar for each line, in milliseconds a step."""
    from matplotlib.figure import Figure

    lines = [line for line in answer.lines if line.seconds][:_MOST][::-1]
    drawn = Figure(figsize=(8.0, 1.2 + 0.3 * max(len(lines), 1)), layout="constrained")
    axes = drawn.add_subplot()
    colours = ["tab:red" if line.seconds > 0 else "tab:green" for line in lines]
    names = [line.after or line.before for line in lines]
    axes.barh(range(len(lines)), [1e3 * line.seconds for line in lines], color=colours)
    axes.set_yticks(range(len(lines)), names)
    axes.axvline(0.0, color="black", linewidth=0.8)
    axes.set_xlabel("ms a step more or less")
    axes.set_title(answer.title, fontsize="medium")
    return drawn
