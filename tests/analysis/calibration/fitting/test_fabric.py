"""The constants that generated readings are recovered; the sizes between are predicted."""

from collections.abc import Iterator
from dataclasses import replace
from math import nan

import pytest

from sim.analysis.calibration.fitting.fabric import fitted
from sim.analysis.calibration.fitting.measured_collectives import NO_WIRES, from_readings
from sim.collectives.interconnect import CollectiveCall, Interconnect
from sim.collectives.libraries import backend
from sim.collectives.libraries.gloo import Gloo, HostRates
from sim.collectives.libraries.nccl import Nccl
from sim.collectives.schedule import GroupShape
from sim.config.errors import InputError
from sim.jobs.traces.operation_times import OperationTime

pytest.importorskip("scipy")

PACE = HostRates(message=9e-5, near=3e9, far=1e9, cache=2.0**20)
KINDS = ("all_reduce", "all_gather", "broadcast", "all_to_all", "point_to_point")
H100 = Interconnect(generation="hopper", gpus_per_node=8, port_bandwidth=450e9, nvls=True)


def of_gloo(kind: str, ranks: int = 2) -> Iterator[OperationTime]:
    library = Gloo(message=1.0, segment=2**20, acknowledgements=0.5, pace={kind: PACE})
    shape = GroupShape(ranks=ranks)
    for power in range(3, 26):
        size = 2.0**power
        call = CollectiveCall(kind, size, shape, NO_WIRES)
        seconds = call.duration(library.call_cost(call))
        yield OperationTime(operation=kind, seconds=seconds, ranks=ranks, bytes=size, sigma=nan)


@pytest.mark.parametrize("kind", KINDS)
def test_gloos_pace_is_recovered(kind: str) -> None:
    fit = fitted("gloo", list(of_gloo(kind)), None)
    pace = HostRates(**fit.constants["pace"][kind])
    assert pace.message == pytest.approx(PACE.message, rel=0.03)
    assert pace.far == pytest.approx(PACE.far, rel=0.05)
    (residual,) = fit.residuals
    assert (residual.name, residual.readings) == (f"{kind} among 2", 11)
    assert residual.worst < 0.05


def test_one_pace_serves_groups_of_all_sizes() -> None:
    readings = [reading for ranks in (2, 4) for reading in of_gloo("all_reduce", ranks)]
    residuals = fitted("gloo", readings, None).residuals
    assert [r.name for r in residuals] == ["all_reduce among 2", "all_reduce among 4"]
    assert max(residual.median for residual in residuals) < 0.05


def test_the_quickest_pass_counts_and_groups_at_once_do_not() -> None:
    reading = OperationTime(operation="reduce", seconds=2.0, ranks=2, bytes=8.0)
    passes = [replace(reading, seconds=seconds) for seconds in (2.0, 9.0, 1.0)]
    at_once = replace(reading, groups=2, seconds=7.0)
    (measured,) = from_readings([*passes, at_once], NO_WIRES)
    assert (measured.time, measured.table) == (1.0, "reduce among 2")


def of_nccl(library: Nccl) -> Iterator[OperationTime]:
    shape = GroupShape(ranks=8)
    for power in range(3, 34):
        call = CollectiveCall("all_reduce", 2.0**power, shape, H100)
        seconds = call.duration(library.call_cost(call))
        yield OperationTime(operation="all_reduce", seconds=seconds, ranks=8, bytes=2.0**power)


def test_nccls_constants_move_to_what_was_measured() -> None:
    usual = backend.load("nccl")
    assert isinstance(usual, Nccl)
    hopper = usual.constants.node["hopper"]
    nodes = {**usual.constants.node, "hopper": replace(hopper, nvls=0.5)}
    slower = Nccl(replace(usual.constants, node=nodes))
    fit = fitted("nccl", list(of_nccl(slower)), H100)
    assert fit.constants["node"]["hopper"]["nvls"] == pytest.approx(0.5, rel=0.02)
    assert fit.residuals[0].median < 0.02
    assert all(path.startswith("node.hopper.") for path in fit.paths)


def test_what_cannot_be_fitted_is_refused() -> None:
    few = list(of_gloo("reduce"))[:3]
    with pytest.raises(InputError, match="was measured at 4 sizes"):
        fitted("gloo", few, None)
    with pytest.raises(InputError, match="--topology NAME"):
        fitted("nccl", list(of_gloo("reduce")), None)
