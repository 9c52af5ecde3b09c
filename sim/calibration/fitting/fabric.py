"""`sim calibrate collectives --out NAME.toml`: readings become the profile of a fabric."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sim.calibration.fitting.constants import get
from sim.calibration.fitting.fit_fabric import Fit, fitted
from sim.calibration.fitting.profile_file import toml
from sim.calibration.timing.provenance import Provenance
from sim.collectives.interconnect import Interconnect
from sim.collectives.libraries import backend
from sim.collectives.libraries.profile import CollectiveResidual, FabricProfile
from sim.config.files import atomic_write
from sim.config.units import quantity_text
from sim.engine.machine import Machine
from sim.formats import operation_times
from sim.formats.operation_times import OperationTime
from sim.hardware.cluster import topology as topologies

HEAD = (
    "# Measured by `sim calibrate collectives`, fitted to every other size; readings in the CSV.\n"
)

_SHARED = "shared"  # in the provenance of what was measured without several GPUs
_RATES = ("near", "far")
_SIZES = ("half", "cache")
_TIMES = ("launch", "time", "message", "overhead", "nvls_hop", "ll", "ll128", "simple")


def profiled(
    library: str,
    readings: Sequence[OperationTime],
    out: Path,
    topology: str | None,
    origin: Provenance,
) -> FabricProfile:
    """Fit the readings and write the profile to `out`, its readings beside it.

    `topology` is the cluster that was measured. Where ranks shared a device (`origin` says so)
    nothing is fitted: what they took is no fabric's. Raises `InputError` where the readings cannot
    be fitted or the files not be written.
    """
    fit: Fit | None = None
    if _SHARED not in origin:
        fit = fitted(library, readings, fabric_of(topology) if topology else None)
    if topology:
        origin = {**origin, "topology": topology}
    constants: dict[str, Any] = {}
    if fit is not None:
        for path in fit.paths:
            _put(constants, path, written(path, get(fit.constants, path)))
    table = out.with_suffix(".csv")
    found = FabricProfile(
        backend=library,
        measurements=table.name,
        provenance={**origin, "samples": sum(one.samples for one in readings)},
        constants=constants,
        residuals=fit.residuals if fit else (),
    )
    operation_times.write(readings, table)
    with atomic_write(out) as part:
        part.write_text(HEAD + toml(document(found)), encoding="utf-8")
    return found


def crowded(library: str, ranks: int, devices: int) -> Provenance:
    """What to note where NCCL's ranks are more than the GPUs, or none has another to talk to.

    >>> crowded("nccl", 8, devices=8), crowded("gloo", 2, devices=0)
    ({}, {})
    >>> crowded("nccl", 2, devices=1)[_SHARED]
    '2 ranks on 1 GPU, over sockets; collectives between GPUs were not measured'
    """
    if library != "nccl" or 1 < ranks <= devices:
        return {}
    how = f"{ranks} ranks on {devices} GPU, over sockets" if ranks > devices else "1 rank"
    return {_SHARED: f"{how}; collectives between GPUs were not measured"}


def fabric_of(topology: str) -> Interconnect:
    """The hardware of a cluster, as a collective library finds it. Raises `InputError`."""
    cluster = topologies.load(topology, where="--topology")
    return Machine(cluster, backend.load("nccl")).interconnect


def written(path: str, value: float) -> str | float:
    """A constant as its file has it: with a unit, unless it is a fraction.

    >>> written("node.hopper.hop.ll", 6.7e-7), written("node.hopper.keeps.ll", 0.25)
    ('0.67 us', 0.25)
    >>> written("pace.reduce.near", 3.1e9), written("pace.reduce.cache", 2.0**21)
    ('3.1 GB/s', '2.097 MB')
    """
    *_, table, key = path.split(".")
    if key in _RATES:
        return quantity_text(value / 1e9, "GB/s")
    if key in _SIZES:
        return quantity_text(value / 1e6, "MB")
    if key in _TIMES and table not in ("keeps", "tree_keeps"):
        return quantity_text(value * 1e6, "us")
    return float(f"{value:.4g}")


def _put(tables: dict[str, Any], path: str, value: str | float) -> None:
    *keys, last = path.split(".")
    for key in keys:
        tables = tables.setdefault(key, {})
    tables[last] = value


def document(profile: FabricProfile) -> dict[str, Any]:
    """The tables of a profile's file."""
    found = {key: getattr(profile, key) for key in ("format", "backend", "measurements")}
    found |= {"provenance": profile.provenance, "constants": profile.constants}
    found["residuals"] = [_residual(one) for one in profile.residuals]
    return found


def _residual(one: CollectiveResidual) -> dict[str, Any]:
    shares = {key: round(getattr(one, key), 4) for key in _SHARES}
    return {**asdict(one), "least": f"{one.least:.0f} B", "most": f"{one.most:.0f} B", **shares}


_SHARES = ("median", "p95", "worst", "bias", "sigma")


def text(residuals: Sequence[CollectiveResidual]) -> str:
    """Errors on the sizes kept out of the fit, a line for each kind of call and group."""
    lines = [f"{'kept out of the fit':36}{'n':>4}{'median':>8}{'p95':>8}{'worst':>8}{'bias':>8}"]
    lines += [
        f"{one.name:36}{one.readings:4}{one.median:8.1%}{one.p95:8.1%}{one.worst:8.1%}"
        f"{one.bias:+8.1%}"
        for one in residuals
    ]
    return "\n".join(lines)
