"""The state of a network follows from what was measured on it."""

from dataclasses import replace
from math import prod

import pytest

from sim.analysis.validation.table import cluster_of
from sim.collectives.interconnect import HEALTHY
from sim.collectives.libraries import backend
from sim.collectives.measured_network import seconds_of
from sim.collectives.schedule import GroupShape
from sim.config.errors import InputError
from sim.engine.machine import Machine
from sim.hardware.cluster import topology as topologies
from sim.program.operations import MeasuredBandwidth

SIZES = (2.0**24, 2.0**28, 2.0**32)
GPUS = (16, 64, 512)


def machine(measured: tuple[MeasuredBandwidth, ...], gpus: int = 512) -> Machine:
    topology = topologies.load("h100-p5-efa").with_gpus(gpus)
    assert topology.network is not None
    network = replace(topology.network, measured=measured)
    return Machine(replace(topology, network=network), backend.load())


def duration(on: Machine, kind: str, size: float, gpus: int) -> float:
    """Seconds of a call on an idle network."""
    call = on.call(kind, size, GroupShape.of(gpus, 8))
    return call.duration(on.state.cost(on.backend.call_cost(call)))


def gathered(size: float, gpus: int, seconds: float) -> MeasuredBandwidth:
    busbw = (gpus - 1) / gpus * size / seconds
    return MeasuredBandwidth(collective="all_gather", gpus=gpus, size=size, bus_bandwidth=busbw)


def test_what_the_library_says_already_changes_nothing() -> None:
    well = machine(())
    measured = tuple(gathered(2**30, n, duration(well, "all_gather", 2**30, n)) for n in GPUS)
    assert machine(measured).state.share == pytest.approx(HEALTHY.share, rel=1e-12)


def test_what_is_quicker_than_the_library_changes_nothing() -> None:
    well = machine(())
    assert (
        machine((gathered(2**30, 64, 0.5 * duration(well, "all_gather", 2**30, 64)),)).state
        == HEALTHY
    )


@pytest.mark.parametrize("share", [0.9, 0.5, 0.01])
def test_times_that_are_longer_by_one_factor_are_bandwidth_that_is_missing(share: float) -> None:
    well = machine(())
    measured = tuple(gathered(s, 64, duration(well, "all_gather", s, 64) / share) for s in SIZES)
    assert machine(measured).state.share == pytest.approx(share)


def test_one_node_is_not_slowed_by_a_network_that_it_does_not_use() -> None:
    measured = (gathered(2**30, 16, 1.0),)
    assert machine(measured, 8).state == HEALTHY
    assert machine(measured, 16).state != HEALTHY


def test_measured_times_follow_nccl_tests_definition_of_bus_bandwidth() -> None:
    reduced = MeasuredBandwidth(collective="all_reduce", gpus=8, size=8e9, bus_bandwidth=1e9)
    assert seconds_of(reduced) == pytest.approx(prod((2, 7, 8e9)) / 8 / 1e9)


@pytest.mark.parametrize(
    ("gbs", "found"), [(13.4, "h100-p5-efa-checked"), (175.0, "h100-p5-efa"), (None, "h100-p5-efa")]
)
def test_a_row_is_simulated_in_the_state_that_its_own_all_reduce_shows(
    gbs: float | None, found: str
) -> None:
    row = {"id": "r", "cluster": "h100-p5-efa", "gpus": 512}
    assert cluster_of(row, gbs and 1e9 * gbs).name == found


def test_a_row_of_one_node_measured_no_network() -> None:
    row = {"id": "r", "cluster": "h100-p5-efa", "gpus": 8}
    assert cluster_of(row, 13.4e9).name == "h100-p5-efa"


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        ({"gpus": 8}, "do not fill several nodes"),
        ({"gpus": 12}, "do not fill several nodes"),
        ({"bus_bandwidth": "0 GB/s"}, "positive"),
        ({"collective": "gossip"}, "collective"),
    ],
)
def test_measurements_without_sense_are_refused(entry: dict[str, object], what: str) -> None:
    usual = {"collective": "all_reduce", "gpus": 16, "size": "1 GiB", "bus_bandwidth": "1 GB/s"}
    with pytest.raises(InputError, match=what):
        topologies.load("h100-p5-efa", {"network.measured": [usual | entry]})


@pytest.mark.parametrize("state", ["dgx-h100-ndr", "no-such-cluster"])
def test_states_without_measurements_are_refused(state: str, monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "topologies").mkdir()
    bad = f'like = "h100-p5-efa"\nname = "bad"\nstates = ["{state}"]\n'
    (tmp_path / "topologies" / "bad.toml").write_text(bad)
    row = {"id": "r", "cluster": "bad", "gpus": 16}
    with pytest.raises(InputError, match=state):
        cluster_of(row, 1e9)
