"""Write a device's profile: a TOML file, with the measurements in CSVs beside it."""

import csv
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sim.config.files import atomic_write
from sim.hardware.kernels import dispatch
from sim.hardware.kernels.measurements import COLUMNS, Measurement, row
from sim.hardware.kernels.profile import Origin, Profile

HEAD = "# Measured and fitted by `sim calibrate`; `sim show` draws it. Times are in the CSV.\n"


def write(profile: Profile, path: Path) -> None:
    """Write all files, each complete or not at all. Raises `InputError` if this is impossible."""
    write_table(profile.measurements, path.parent / profile.origin.measurements)
    if profile.operators:
        dispatch.write(profile.operators, path.parent / profile.origin.operators)
    with atomic_write(path) as part:
        part.write_text(text(profile), encoding="utf-8")


def write_table(measurements: Iterable[Measurement], path: Path) -> None:
    """Write the CSV of measured kernels, complete or not at all."""
    with atomic_write(path) as part, part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(row, measurements))


def text(profile: Profile) -> str:
    """Return the TOML of a profile, as `sim.hardware.kernels.profile` reads it."""
    tables = [HEAD, toml(document(profile.origin)), profile.environment.toml()]
    return "\n".join(table for table in tables if table).rstrip() + "\n"


def document(origin: Origin) -> dict[str, Any]:
    """Return the tables of a profile's file, without the tables whose values have units
    (`sim.hardware.kernels.environment`)."""
    tables: dict[str, Any] = {
        key: getattr(origin, key)
        for key in ("format", "device", "measurements", "operators", "provenance", "rates")
    }
    tables["smoothness"] = {kind: asdict(smooth) for kind, smooth in origin.smoothness.items()}
    tables["residuals"] = [asdict(residual) for residual in origin.residuals]
    return {key: value for key, value in tables.items() if value}


def toml(tables: dict[str, Any]) -> str:
    """Return a document as TOML."""
    import tomli_w

    return str(tomli_w.dumps(tables, multiline_strings=False))
