"""The profile of a fabric, which `sim calibrate collectives` fits to measured collectives."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sim.analysis.calibration.fitting.constants import get
from sim.analysis.calibration.fitting.fabric import FabricFit, fitted
from sim.analysis.calibration.fitting.measured_collectives import (
    NO_WIRES,
    MeasuredCollective,
    from_readings,
)
from sim.analysis.calibration.fitting.profile_file import toml
from sim.analysis.calibration.timing.provenance import Provenance
from sim.collectives.interconnect import Interconnect
from sim.collectives.libraries import backend
from sim.collectives.libraries.profile import FOLDER, CollectiveResidual, FabricProfile, find
from sim.config import catalog
from sim.config.errors import InputError
from sim.config.files import atomic_write
from sim.config.readable import quantity_text
from sim.engine.machine import Machine
from sim.hardware.cluster import topology as topologies
from sim.jobs.traces.operation_times import OperationTime
from sim.jobs.traces.operation_times import read as read_readings
from sim.jobs.traces.operation_times import write as write_readings
from sim.scenario.settings import changed

HEAD = (
    "# Measured by `sim calibrate collectives`, fitted to every other size; readings in the CSV.\n"
)

_SHARED = "shared"  # this key of the provenance says that ranks shared a GPU
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
    """Fit the readings, and write the profile to `out` with its readings beside it.

    `topology` is the cluster that was measured. If ranks shared a device (`origin` says so),
    nothing is fitted, because the times depend on no fabric. Raises `InputError` if the
    readings cannot be fitted or the files cannot be written.
    """
    fit: FabricFit | None = None
    if _SHARED not in origin:
        fit = fitted(library, readings, fabric_of(topology) if topology else None)
    if topology:
        origin = {**origin, "topology": topology}
    fits = {} if fit is None else {path: get(fit.constants, path) for path in fit.paths}
    constants = {path: written(path, constant) for path, constant in fits.items()}
    table = out.with_suffix(".csv")
    profile = FabricProfile(
        backend=library,
        measurements=table.name,
        provenance={**origin, "samples": sum(reading.samples for reading in readings)},
        constants=changed({}, constants, "the profile"),
        residuals=fit.residuals if fit else (),
    )
    write_readings(readings, table)
    with atomic_write(out) as part:
        part.write_text(HEAD + toml(document(profile)), encoding="utf-8")
    return profile


def measured(name: str) -> list[MeasuredCollective]:
    """Return the measured collectives to which a profile was fitted. Raises `InputError`."""
    profile, path = find(name), catalog.find(FOLDER, name)
    assert profile is not None, f"{name} is the profile of a fabric"
    readings = read_readings(path.parent / profile.measurements)
    count = sum(reading.samples for reading in readings)
    samples = profile.provenance.get("samples", count)
    if samples != count:
        fault = f"samples = {samples}, but the readings in {profile.measurements} have {count}"
        remedy = "take the CSV that the profile came with, or correct samples"
        raise InputError(catalog.place(path), fault, remedy)
    topology = profile.provenance.get("topology")
    return from_readings(readings, fabric_of(str(topology)) if topology else NO_WIRES)


def shared_devices(library: str, ranks: int, devices: int) -> Provenance:
    """Return the note for NCCL ranks that outnumber the GPUs, or for a single rank without a peer.

    >>> shared_devices("nccl", 8, devices=8), shared_devices("gloo", 2, devices=0)
    ({}, {})
    >>> shared_devices("nccl", 2, devices=1)[_SHARED]
    '2 ranks on 1 GPU, over sockets; collectives between GPUs were not measured'
    """
    if library != "nccl" or 1 < ranks <= devices:
        return {}
    how = f"{ranks} ranks on {devices} GPU, over sockets" if ranks > devices else "1 rank"
    return {_SHARED: f"{how}; collectives between GPUs were not measured"}


def fabric_of(topology: str) -> Interconnect:
    """Return the hardware of a cluster as a collective library sees it. Raises `InputError`."""
    cluster = topologies.load(topology, where="--topology")
    return Machine(cluster, backend.load("nccl")).interconnect


def written(path: str, value: float) -> str | float:
    """Return a constant as the profile's file writes it: with a unit, unless it is a fraction.

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


def document(profile: FabricProfile) -> dict[str, Any]:
    """Return the tables of a profile's file."""
    tables = {key: getattr(profile, key) for key in ("format", "backend", "measurements")}
    tables |= {"provenance": profile.provenance, "constants": profile.constants}
    return tables | {"residuals": [_residual(residual) for residual in profile.residuals]}


def _residual(residual: CollectiveResidual) -> dict[str, Any]:
    shares = {key: round(getattr(residual, key), 4) for key in _SHARES}
    bounds = {key: f"{getattr(residual, key):.0f} B" for key in ("least", "most")}
    return {**asdict(residual), **bounds, **shares}


_SHARES = ("median", "p95", "worst", "bias", "sigma")
