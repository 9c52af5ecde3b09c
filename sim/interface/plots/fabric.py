"""Draw a fabric's profile: time against bytes, measured and fitted, and the errors.

Filled marks are measurements that were kept out of the fit.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sim.analysis.calibration.fitting.fabric_profile import measured
from sim.analysis.calibration.fitting.measured_collectives import MeasuredCollective, alternate
from sim.collectives.libraries import backend
from sim.interface.plots.picture import PALETTE, Figure


def figure(name: str) -> Figure:
    """Draw the fabric's profile of a name or path. Raises `InputError`."""
    runs, fitted = measured(name), backend.load(name)
    kept_out = {(run.table, run.size) for run in alternate(runs, 1)}
    fig = Figure(figsize=(9, 8), layout="constrained")
    panels = fig.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    for number, table in enumerate(dict.fromkeys(run.table for run in runs)):
        of_table = [run for run in runs if run.table == table]
        colour = PALETTE[number % len(PALETTE)]
        faces = [colour if (table, run.size) in kept_out else "none" for run in of_table]
        seconds = [run.duration(fitted.call_cost(run)) for run in of_table]
        _series(panels, of_table, seconds, colour, faces)
    _label(panels, Path(name).stem)
    return fig


def _series(
    panels: Any,
    runs: Sequence[MeasuredCollective],
    fitted: Sequence[float],
    colour: str,
    faces: Sequence[str],
) -> None:
    above, below = panels
    sizes = [run.size for run in runs]
    errors = [100.0 * (time / run.time - 1.0) for time, run in zip(fitted, runs, strict=True)]
    above.plot(sizes, [1e6 * time for time in fitted], color=colour, label=runs[0].table)
    for axes, values in ((above, [1e6 * run.time for run in runs]), (below, errors)):
        axes.scatter(sizes, values, facecolors=faces, edgecolors=colour, s=22)


def _label(panels: Any, title: str) -> None:
    above, below = panels
    above.set(xscale="log", yscale="log", ylabel="time (us)")
    above.set_title(f"{title}: lines are fitted, filled marks were kept out of the fit")
    above.legend(fontsize="small")
    below.axhline(0.0, color="grey", linewidth=0.8)
    below.set(xlabel="bytes", ylabel="fitted / measured - 1 (%)")
