"""The fit recovers the constants that generated the data; each step names existing constants."""

from copy import deepcopy
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from benchmarks.nccl_tables import H100, read
from benchmarks.published_nccl import STEPS, main, table_errors
from sim.analysis.calibration.fitting.measured_collectives import MeasuredCollective, alternate
from sim.analysis.calibration.fitting.nccl import (
    FitStep,
    backend_of,
    fitted,
    predicted,
    predictor,
)
from sim.collectives.libraries.nccl import NcclConstants
from sim.collectives.schedule import GroupShape
from sim.config import catalog

CONSTANTS = asdict(catalog.load("topologies/backends", "nccl", NcclConstants))

TESTS = """\
table_id,collective,gpu,nodes,gpus,inter,nccl,size_bytes,oop_time_us,ip_time_us
node,all_reduce,H100 80GB SXM,1,8,-,,1073741824,4029.40,4016.40
pair,all_reduce,H100 80GB SXM,2,16,3200 Gb/s EFA per node,,1073741824,4607.60,
ring,all_reduce,V100 32GB SXM2,2,16,100 Gb/s EFA per node,"2.4.8 (ring)",8,145.4,152.8
odd,all_reduce,H100 80GB SXM,2,16,string and cans,,1024,1.0,1.0
mean,AllReduce,H100 80GB SXM,2,16,3200 Gb/s EFA per node,,not stated (bulk),,
"""
NODE = "gpu,gpus,size_bytes,time_us,busbw_GBs\nv100,8,1073741824,13969.00,134.51\n"


@pytest.fixture
def tables(tmp_path: Path) -> tuple[Path, Path]:
    paths = tmp_path / "nccl_tests.csv", tmp_path / "node.csv"
    for path, text in zip(paths, (TESTS, NODE), strict=True):
        path.write_text(text)
    return paths


def generated() -> list[MeasuredCollective]:
    """All-reduces of 12 sizes that the present constants predict exactly."""
    template = MeasuredCollective(
        table="t",
        kind="all_reduce",
        size=1.0,
        shape=GroupShape.of(8, 8),
        interconnect=H100,
        time=1.0,
    )
    backend = backend_of(CONSTANTS)
    sized = [replace(template, size=4.0**k) for k in range(3, 15)]
    return [replace(collective, time=predicted(backend, collective)) for collective in sized]


def test_rows_become_collectives_on_their_fabrics(tables: tuple[Path, Path]) -> None:
    (node, pair, ring, cube), skipped = read(*tables)
    assert (node.time, node.shape.nodes, node.interconnect.nvls) == (4016.40e-6, 1, True)
    assert (pair.interconnect.network, pair.interconnect.nic_share(8)) == ("efa", 400e9)
    assert (ring.algorithms, ring.interconnect.network) == (("ring",), "efa-host")
    assert (cube.table, cube.interconnect.cable_bandwidth) == ("v100_node_vtrain", 25e9)
    assert set(skipped) == {"odd", "mean"}


def test_a_table_whose_log_shows_fewer_nics_has_fewer(tmp_path: Path) -> None:
    heading, line = TESTS.splitlines()[0], "{},all_reduce,A100,4,32,400 Gb/s EFA per node,,8,1,1"
    published, node = tmp_path / "nccl_tests.csv", tmp_path / "node.csv"
    published.write_text("\n".join([heading, *map(line.format, ("a100_aws_p4d_issue527", "b"))]))
    node.write_text(NODE)
    three, four, _ = read(published, node)[0]
    assert (three.interconnect.nic_share(8), four.interconnect.nic_share(8)) == (37.5e9, 50e9)


def test_fit_recovers_a_constant_that_was_spoiled() -> None:
    spoiled = deepcopy(CONSTANTS)
    spoiled["node"]["hopper"]["ring"] *= 0.9
    step = FitStep(tables=("t",), node="hopper", of_node=("ring",))
    recovered = fitted(spoiled, generated(), [step])
    assert recovered["node"]["hopper"]["ring"] == pytest.approx(
        CONSTANTS["node"]["hopper"]["ring"], rel=0.01
    )


def test_fit_leaves_alone_what_its_tables_do_not_show() -> None:
    step = FitStep(tables=("t",), networks=("roce",), of_network=("fraction",))
    constants = fitted(CONSTANTS, generated(), [step])
    assert constants["network"]["roce"]["fraction"] == pytest.approx(
        CONSTANTS["network"]["roce"]["fraction"]
    )


def test_sizes_are_either_fitted_or_kept_out() -> None:
    shown, kept_out = alternate(generated(), 0), alternate(generated(), 1)
    assert len(shown) == len(kept_out) == 6
    assert not {row.size for row in shown} & {row.size for row in kept_out}


def test_errors_of_exact_predictions_are_zero() -> None:
    (error,) = table_errors(predictor(CONSTANTS), generated())
    assert (error.rows, error.median, error.worst) == (12, 0.0, 0.0)


def test_every_step_names_constants_that_exist() -> None:
    for path in (path for step in STEPS for path in step.paths):
        value = CONSTANTS
        for key in path.split("."):
            value = value[key]
        assert isinstance(value, float), path


def test_command_prints_a_line_for_each_table(
    tables: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    main([str(path) for path in tables])
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("node", "pair", "ring", "v100_node_vtrain"))
    assert "mean: left out, size not stated" in printed
