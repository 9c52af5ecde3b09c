"""A fabric's profile shown: where it is from, its errors, measured beside fitted."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.calibration.fitting.fabric_profile import measured, text
from sim.calibration.fitting.measured_collectives import (
    MeasuredCollective,
    alternate,
)
from sim.collectives.libraries import backend
from sim.collectives.libraries.profile import FOLDER, FabricProfile, find
from sim.config import catalog as library
from sim.config.errors import InputError
from sim.config.files import whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's, which colour-blind readers can tell apart.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def is_one(name: str) -> bool:
    """Whether a name, or a path, is that of a fabric's profile.

    >>> is_one("dgx-a100-hdr")
    False
    """
    try:
        return "backend" in library.read(library.find(FOLDER, name))
    except InputError:
        return False


def describe(name: str) -> str:
    """Provenance, constants and errors of a fabric's profile. Raises `InputError`."""
    found = _found(name)
    lines = [f"{Path(name).stem}: collectives of {found.backend}"]
    lines += [f"  {key:10}{value}" for key, value in found.provenance.items() if value != ""]
    lines += ["", *(f"  {path} = {value}" for path, value in _flat(found.constants))]
    return "\n".join([*lines, "", text(found.residuals)])


def _found(name: str) -> FabricProfile:
    found = find(name)
    assert found is not None, "the caller has asked `is_one`"
    return found


def _flat(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def draw(name: str, out: Path) -> None:
    """Time against bytes, measured and fitted, and the errors; filled marks were kept out.

    Raises `InputError` for a file that is neither .png nor .svg or cannot be written.
    """
    kind = out.suffix.removeprefix(".").lower()
    if kind not in ("png", "svg"):
        raise InputError(str(out), "is neither .png nor .svg", "end the name in .png or .svg")
    with whole(out) as part:
        figure(name).savefig(part, format=kind, dpi=150)


def figure(name: str) -> "Figure":
    """The picture as a matplotlib figure."""
    from matplotlib.figure import Figure

    shown, fitted = measured(name), backend.load(name)
    kept_out = {(run.table, run.size) for run in alternate(shown, 1)}
    drawn = Figure(figsize=(9, 8), layout="constrained")
    axes = drawn.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    for number, table in enumerate(dict.fromkeys(run.table for run in shown)):
        own, colour = [run for run in shown if run.table == table], _COLOURS[number % 7]
        faces = [colour if (table, run.size) in kept_out else "none" for run in own]
        _series(axes, own, [_seconds(fitted, run) for run in own], colour, faces)
    _label(axes, Path(name).stem)
    return drawn


def _series(
    axes: Any,
    own: Sequence[MeasuredCollective],
    fitted: Sequence[float],
    colour: str,
    faces: Sequence[str],
) -> None:
    above, below = axes
    sizes = [run.size for run in own]
    errors = [100.0 * (time / run.time - 1.0) for time, run in zip(fitted, own, strict=True)]
    above.plot(sizes, [1e6 * time for time in fitted], color=colour, label=own[0].table)
    for part, values in ((above, [1e6 * run.time for run in own]), (below, errors)):
        part.scatter(sizes, values, facecolors=faces, edgecolors=colour, s=22)


def _seconds(fitted: backend.Backend, run: MeasuredCollective) -> float:
    wire = fitted.wire(run.kind, run.size, run.shape, run.fabric)
    return run.fabric.duration(wire, run.shape)


def _label(axes: Any, title: str) -> None:
    above, below = axes
    above.set(xscale="log", yscale="log", ylabel="time (us)")
    above.set_title(f"{title}: lines are fitted, filled marks were kept out of the fit")
    above.legend(fontsize="small")
    below.axhline(0.0, color="grey", linewidth=0.8)
    below.set(xlabel="bytes", ylabel="fitted / measured - 1 (%)")
