"""The fit finds constants that made the data, and the committed ones describe what they claim."""

from copy import deepcopy
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from sim.calibration.fitting.constants import alternate, table_errors
from sim.calibration.fitting.nccl import (
    STAGES,
    Stage,
    backend_of,
    fitted,
    main,
    predicted,
    predictor,
)
from sim.calibration.fitting.nccl_tables import H100, Run, read
from sim.collectives.group import GroupShape
from sim.collectives.libraries.nccl_constants import NcclConstants
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


def made(table: str = "t", sizes: int = 12) -> list[Run]:
    """Runs that the present constants predict exactly."""
    shape = GroupShape.of(8, 8)
    runs = [
        Run(table=table, kind="all_reduce", size=4.0**k, shape=shape, interconnect=H100, time=1.0)
        for k in range(3, 3 + sizes)
    ]
    backend = backend_of(CONSTANTS)
    return [replace(run, time=predicted(backend, run)) for run in runs]


def test_rows_become_runs_on_their_fabrics(tables: tuple[Path, Path]) -> None:
    runs, skipped = read(*tables)
    node, pair, ring, cube = runs
    assert (node.time, node.shape.nodes, node.interconnect.nvls) == (4016.40e-6, 1, True)
    assert (pair.interconnect.network, pair.interconnect.nic_share(8)) == ("efa", 400e9)
    assert (ring.forced, ring.interconnect.network) == ("ring", "efa-host")
    assert (cube.table, cube.interconnect.cable_bandwidth) == ("v100_node_vtrain", 25e9)
    assert set(skipped) == {"odd", "mean"}


def test_a_table_whose_log_shows_fewer_nics_has_those(tmp_path: Path) -> None:
    heading, line = TESTS.splitlines()[0], "{},all_reduce,A100,4,32,400 Gb/s EFA per node,,8,1,1"
    published, node = tmp_path / "nccl_tests.csv", tmp_path / "node.csv"
    published.write_text("\n".join([heading, *map(line.format, ("a100_aws_p4d_issue527", "b"))]))
    node.write_text(NODE)
    three, four, _ = read(published, node)[0]
    assert (three.interconnect.nic_share(8), four.interconnect.nic_share(8)) == (37.5e9, 50e9)


def test_fit_recovers_a_constant_that_was_spoiled() -> None:
    runs, spoiled = made(), deepcopy(CONSTANTS)
    spoiled["node"]["hopper"]["nvls"] *= 0.8
    stage = Stage(tables=("t",), node="hopper", of_node=("nvls",))
    found = fitted(spoiled, runs, [stage])
    assert found["node"]["hopper"]["nvls"] == pytest.approx(
        CONSTANTS["node"]["hopper"]["nvls"], rel=0.01
    )


def test_fit_leaves_alone_what_its_tables_do_not_show() -> None:
    stage = Stage(tables=("t",), networks=("roce",), of_network=("fraction",))
    found = fitted(CONSTANTS, made(), [stage])
    assert found["network"]["roce"]["fraction"] == pytest.approx(
        CONSTANTS["network"]["roce"]["fraction"]
    )


def test_sizes_are_either_fitted_or_kept_back() -> None:
    runs = made()
    seen, kept = alternate(runs, 0), alternate(runs, 1)
    assert len(seen) == len(kept) == 6
    assert not {run.size for run in seen} & {run.size for run in kept}


def test_errors_of_runs_predicted_exactly_are_zero() -> None:
    (error,) = table_errors(predictor(CONSTANTS), made())
    assert (error.runs, error.median, error.worst) == (12, 0.0, 0.0)


def test_every_stage_names_constants_that_exist() -> None:
    for path in (path for stage in STAGES for path in stage.paths):
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
