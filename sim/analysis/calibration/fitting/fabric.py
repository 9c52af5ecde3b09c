"""Fit the constants of the models of gloo and NCCL to the measured times of their collectives.

Every other size of each kind of call and group is fitted. The sizes between them are kept out, and
show how good the fit is. Readings of several groups at once are not fitted, since the simulator
itself predicts contention.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from math import log
from statistics import fmean, median, stdev
from typing import TypeVar

from sim.analysis.calibration.fitting import gloo, nccl
from sim.analysis.calibration.fitting.constants import Predict, Tree
from sim.analysis.calibration.fitting.measured_collectives import (
    NO_WIRES,
    MeasuredCollective,
    alternate,
    from_readings,
    tables,
)
from sim.collectives.interconnect import Interconnect
from sim.collectives.libraries.gloo import Gloo
from sim.collectives.libraries.nccl import NcclConstants
from sim.collectives.libraries.profile import CollectiveResidual
from sim.config import catalog
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.jobs.traces.operation_times import OperationTime

_LEAST = 4  # how many sizes of a kind of call must be measured before the kind is fitted


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricFit:
    """Fitted constants as nested tables in SI units, their dotted paths, and errors of the fit."""

    constants: Tree
    paths: tuple[str, ...]
    residuals: tuple[CollectiveResidual, ...]


def fitted(
    backend: str, readings: Sequence[OperationTime], interconnect: Interconnect | None
) -> FabricFit:
    """Return the constants of "gloo" or "nccl". Raises `InputError` if there is nothing to fit."""
    collectives = from_readings(readings, interconnect or NO_WIRES)
    rows = [collective.table for collective in collectives]
    if max(map(rows.count, rows), default=0) < _LEAST:
        fault = f"no collective among several ranks was measured at {_LEAST} sizes"
        raise InputError("readings", fault, "measure more")
    if backend == "gloo":
        return _gloo(collectives)
    if interconnect is None:
        fault = "NCCL's constants differ between GPUs and between networks"
        raise InputError("fitting", fault, "name the cluster that was measured: --topology NAME")
    return _nccl(collectives, interconnect)


def _gloo(collectives: Sequence[MeasuredCollective]) -> FabricFit:
    """Fit a `HostRates` for each kind of collective that was measured at enough sizes."""
    constants = asdict(_default_constants(Gloo, "gloo"))
    paths: list[str] = []
    for kind in sorted({collective.kind for collective in collectives}):
        of_kind = [collective for collective in collectives if collective.kind == kind]
        if len({collective.size for collective in of_kind}) >= _LEAST:
            constants["pace"][kind] = gloo.fitted_pace(constants, kind, of_kind)
            paths += gloo.paths(kind)
    return _fit(constants, paths, collectives, gloo.predictor)


def _nccl(collectives: Sequence[MeasuredCollective], interconnect: Interconnect) -> FabricFit:
    """Fit the GPUs' constants within nodes, then the network's constants across nodes."""
    constants = asdict(_default_constants(NcclConstants, "nccl"))
    inside = [collective for collective in collectives if collective.shape.nodes == 1]
    across = [collective for collective in collectives if collective.shape.nodes > 1]
    steps = [
        step
        for step in (_within_nodes(inside, interconnect), _between(across, interconnect))
        if step
    ]
    paths = [path for step in steps for path in step.paths]
    return _fit(nccl.fitted(constants, collectives, steps), paths, collectives, nccl.predictor)


def _within_nodes(
    inside: Sequence[MeasuredCollective], interconnect: Interconnect
) -> nccl.FitStep | None:
    if not inside:
        return None
    direct = any(collective.kind in ("all_to_all", "point_to_point") for collective in inside)
    keys = (*nccl.RING, "hop.ll", "keeps.ll", *(("peer",) if direct else ()))
    if interconnect.nvls:
        keys += ("nvls", "nvls_hop", "nvls_fill.time", "nvls_fill.half")
    return nccl.FitStep(tables=tables(inside), node=interconnect.generation, of_node=keys)


def _between(
    across: Sequence[MeasuredCollective], interconnect: Interconnect
) -> nccl.FitStep | None:
    if not across:
        return None
    tree = ("tree_keeps.ll", "tree_keeps.ll128", *(("nvls_tree",) if interconnect.nvls else ()))
    return nccl.FitStep(
        tables=tables(across),
        node=interconnect.generation,
        of_node=tree,
        networks=(interconnect.network,),
        of_network=(*nccl.HOPS, "fraction", "fill.time", "fill.half"),
    )


def _fit(
    constants: Tree,
    paths: Sequence[str],
    collectives: Sequence[MeasuredCollective],
    predictor: Callable[[Tree], Predict],
) -> FabricFit:
    predict = predictor(constants)
    kept_out = alternate(collectives, 1)
    residuals = [
        _residual(table, predict, [row for row in collectives if row.table == table], kept_out)
        for table in tables(kept_out)
    ]
    return FabricFit(constants=constants, paths=tuple(paths), residuals=tuple(residuals))


def _residual(
    table: str,
    predict: Predict,
    rows: Sequence[MeasuredCollective],
    kept_out: Sequence[MeasuredCollective],
) -> CollectiveResidual:
    ratios = [predict(row) / row.time for row in kept_out if row.table == table]
    errors = sorted(abs(ratio - 1.0) for ratio in ratios)
    return CollectiveResidual(
        name=table,
        readings=len(ratios),
        least=min(row.size for row in rows),
        most=max(row.size for row in rows),
        median=median(errors),
        p95=errors[round(0.95 * (len(errors) - 1))],
        worst=errors[-1],
        bias=fmean(ratios) - 1.0,
        sigma=stdev(log(ratio) for ratio in ratios) if len(ratios) > 1 else 0.0,
    )


K = TypeVar("K")


def _default_constants(kind: type[K], name: str) -> K:
    """Return the constants that a library has without a profile."""
    data = catalog.read(catalog.find("topologies/backends", name))
    data.pop("library", None)
    return catalog.validate(data, kind, name)
