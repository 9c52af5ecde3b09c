"""A fabric's profile from readings of its collectives: constants of gloo's or of NCCL's model.

Every other size of each kind of call and group is fitted, the sizes between them are kept out and
say how good the fit is. Readings of several groups at once are not fitted: contention is the
simulator's to find.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from math import log
from statistics import fmean, median, stdev
from typing import TypeVar

from sim.calibration.fitting import nccl as fit_nccl
from sim.calibration.fitting.constants import Predict, Tree, alternate, best
from sim.calibration.fitting.nccl_tables import Run
from sim.collectives.group import GroupShape
from sim.collectives.interconnect import Interconnect
from sim.collectives.libraries.gloo import Gloo, HostRates
from sim.collectives.libraries.nccl_constants import NcclConstants
from sim.collectives.libraries.profile import CollectiveResidual
from sim.collectives.schedule import KINDS
from sim.config import catalog
from sim.config.errors import InputError
from sim.formats.operation_times import OperationTime

# A machine whose ranks no wire holds up: what gloo's calls over loopback take is their own pace.
WIRELESS = Interconnect(generation="cpu", gpus_per_node=1 << 20, port_bandwidth=1e18)
_LEAST = 4  # sizes that a kind of call needs to be fitted
_REACHES = tuple(2.0**k for k in range(17, 26, 2))  # first guesses of a cache, bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Fitted constants as nested tables in SI units, and how far they are from the readings."""

    constants: Tree
    paths: tuple[str, ...]
    residuals: tuple[CollectiveResidual, ...]


def runs(readings: Iterable[OperationTime], interconnect: Interconnect) -> list[Run]:
    """Collectives among several ranks, one group at a time.

    Of several passes over the same the quickest counts, as with kernels: what else the machine has
    to do only ever makes a call wait, on shared cores for a slice of the scheduler's (3 ms).
    """
    seen: dict[tuple[str, int, int, float], list[float]] = {}
    for one in readings:
        if one.operation in KINDS and one.ranks > 1 and one.groups == 1 and one.bytes > 0:
            key = (one.operation, one.ranks, one.nodes, one.bytes)
            seen.setdefault(key, []).append(one.seconds)
    return [
        Run(
            table=_table(kind, ranks, nodes),
            kind=kind,
            size=size,
            shape=GroupShape(ranks=ranks, nodes=nodes),
            interconnect=interconnect,
            time=min(times),
        )
        for (kind, ranks, nodes, size), times in sorted(seen.items())
    ]


def _table(kind: str, ranks: int, nodes: int) -> str:
    """
    >>> _table("all_reduce", 16, 2)
    'all_reduce among 16 on 2 nodes'
    """
    return f"{kind} among {ranks}" + (f" on {nodes} nodes" if nodes > 1 else "")


def fitted(
    backend: str, readings: Sequence[OperationTime], interconnect: Interconnect | None
) -> Fit:
    """The constants of "gloo" or "nccl". Raises `InputError` where there is nothing to fit."""
    found = runs(readings, interconnect or WIRELESS)
    if max((sum(run.table == one.table for run in found) for one in found), default=0) < _LEAST:
        what = f"no collective of at least {_LEAST} sizes among several ranks"
        raise InputError("readings", what, "measure more")
    if backend == "gloo":
        return _gloo(found)
    if interconnect is None:
        what = "NCCL's constants belong to a kind of GPU and of network"
        raise InputError("fitting", what, "name the cluster that was measured: --topology NAME")
    return _nccl(found, interconnect)


def _gloo(found: Sequence[Run]) -> Fit:
    """A `HostRates` for each kind that was measured at enough sizes."""
    constants = asdict(_library(Gloo, "gloo"))
    paths: list[str] = []
    for kind in sorted({run.kind for run in found}):
        own = [run for run in found if run.kind == kind]
        if len({run.size for run in own}) >= _LEAST:
            constants["pace"][kind] = _pace(constants, kind, alternate(own, 0))
            paths += [f"pace.{kind}.{key}" for key in ("message", "near", "far", "cache")]
    return _fit(constants, paths, found, _of_gloo)


def _pace(constants: Tree, kind: str, shown: Sequence[Run]) -> Tree:
    """Of one kind of call, from the best of several first guesses."""
    paths = [f"pace.{kind}.{key}" for key in ("message", "near", "far", "cache")]
    tried = [
        best({**constants, "pace": {kind: guess}}, paths, shown, _of_gloo)
        for guess in _guesses(shown)
    ]
    found = min(tried, key=lambda one: _misfit(_of_gloo(one), shown))
    pace: Tree = found["pace"][kind]
    return pace


def _guesses(shown: Sequence[Run]) -> Iterator[Tree]:
    """The least time is a message's, the largest size shows the rate, caches are anywhere."""
    ordered = sorted(shown, key=lambda run: run.size)
    rate = ordered[-1].size / ordered[-1].time
    reaches = [cache for cache in _REACHES if cache < ordered[-1].size] or [ordered[-1].size]
    for cache in reaches:
        yield {"message": ordered[0].time, "near": 2.0 * rate, "far": rate, "cache": cache}


def _misfit(predict: Predict, shown: Sequence[Run]) -> float:
    return fmean(abs(log(predict(run) / run.time)) for run in shown)


def _of_gloo(constants: Tree) -> Predict:
    pace = {kind: HostRates(**table) for kind, table in constants["pace"].items()}
    backend = Gloo(**{**constants, "pace": pace})
    return lambda run: run.interconnect.duration(
        backend.call_cost(run.kind, run.size, run.shape, run.interconnect), run.shape
    )


def _nccl(found: Sequence[Run], interconnect: Interconnect) -> Fit:
    """Within nodes the GPUs' constants, then across nodes the network's."""
    constants = asdict(_library(NcclConstants, "nccl"))
    inside = [run for run in found if run.shape.nodes == 1]
    across = [run for run in found if run.shape.nodes > 1]
    stages = [
        stage for stage in (_within(inside, interconnect), _between(across, interconnect)) if stage
    ]
    paths = [path for stage in stages for path in stage.paths]
    return _fit(fit_nccl.fitted(constants, found, stages), paths, found, fit_nccl.predictor)


def _within(found: Sequence[Run], interconnect: Interconnect) -> fit_nccl.Stage | None:
    if not found:
        return None
    direct = any(run.kind in ("all_to_all", "point_to_point") for run in found)
    keys = (*fit_nccl.RING, "hop.ll", "keeps.ll", *(("peer",) if direct else ()))
    if interconnect.nvls:
        keys += ("nvls", "nvls_hop", "nvls_fill.time", "nvls_fill.half")
    return fit_nccl.Stage(tables=_tables(found), node=interconnect.generation, of_node=keys)


def _between(found: Sequence[Run], interconnect: Interconnect) -> fit_nccl.Stage | None:
    if not found:
        return None
    tree = ("tree_keeps.ll", "tree_keeps.ll128", *(("nvls_tree",) if interconnect.nvls else ()))
    return fit_nccl.Stage(
        tables=_tables(found),
        node=interconnect.generation,
        of_node=tree,
        networks=(interconnect.network,),
        of_network=(*fit_nccl.HOPS, "fraction", "fill.time", "fill.half"),
    )


def _tables(found: Sequence[Run]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(run.table for run in found))


def _fit(
    constants: Tree,
    paths: Sequence[str],
    found: Sequence[Run],
    predictor: Callable[[Tree], Predict],
) -> Fit:
    predict = predictor(constants)
    kept_out = alternate(found, 1)
    residuals = [
        _residual(table, predict, [run for run in found if run.table == table], kept_out)
        for table in _tables(kept_out)
    ]
    return Fit(constants=constants, paths=tuple(paths), residuals=tuple(residuals))


def _residual(
    table: str, predict: Predict, own: list[Run], kept_out: Sequence[Run]
) -> CollectiveResidual:
    ratios = [predict(run) / run.time for run in kept_out if run.table == table]
    errors = sorted(abs(ratio - 1.0) for ratio in ratios)
    return CollectiveResidual(
        name=table,
        readings=len(ratios),
        least=min(run.size for run in own),
        most=max(run.size for run in own),
        median=median(errors),
        p95=errors[round(0.95 * (len(errors) - 1))],
        worst=errors[-1],
        bias=fmean(ratios) - 1.0,
        sigma=stdev(log(ratio) for ratio in ratios) if len(ratios) > 1 else 0.0,
    )


K = TypeVar("K")


def _library(kind: type[K], name: str) -> K:
    """The constants that a library has without a profile."""
    data = catalog.read(catalog.find("topologies/backends", name))
    data.pop("library", None)
    return catalog.validate(data, kind, name)
