"""Fit the constants of topologies/backends/nccl.toml to published nccl-tests, and print the errors.

    python -m benchmarks.published_nccl TABLE.csv TABLE.csv [TABLE.csv.gz] --fit

Every other size of each table is fitted, the sizes between them are kept out; the printed errors
are of those alone, if a table has any. The steps follow the hardware: first what one node shows of
its GPUs and NVLink, then what several nodes show of their network.
"""

from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import nan
from pathlib import Path
from statistics import median

from benchmarks.nccl_tables import read
from sim.analysis.calibration.fitting.constants import LARGE, Predict, get
from sim.analysis.calibration.fitting.measured_collectives import (
    MeasuredCollective,
    alternate,
    tables,
)
from sim.analysis.calibration.fitting.nccl import (
    HOPS,
    RING,
    FitStep,
    fitted,
    predictor,
)
from sim.collectives.libraries.nccl import NcclConstants
from sim.config import catalog

BULK = ("ring", "touch", "fill.time", "fill.half")
STEPS_OF_RING = ("launch", "hop.ll", "hop.ll128", "hop.simple", "keeps.ll", "keeps.ll128")
NVLS = ("nvls", "nvls_hop", "nvls_fill.time", "nvls_fill.half")
ALL_TO_ALL = tuple(f"all_to_all.{key}" for key in ("share", "touch", "fill.time", "fill.half"))
ALL, REST = ("all_to_all",), ("all_reduce", "all_gather", "reduce_scatter")


def of_systems(kinds: Sequence[str], *systems: str) -> tuple[str, ...]:
    """The tables of aiconfigurator's systems that have these kinds of collectives."""
    return tuple(f"{system} {kind} {n}" for system in systems for kind in kinds for n in (2, 4, 8))


_A100 = ("a100_node_vtrain", *of_systems(REST, "a100_sxm"))
_H100 = ("h100_8gpu_dgxc", "h100_8gpu_aws_p5_batch", *of_systems(REST, "h100_sxm", "h200_sxm"))
_B200 = of_systems(REST, "b200_sxm", "gb200")
STEPS = (
    FitStep(tables=("v100_node_vtrain",), node="volta", of_node=RING),
    FitStep(tables=_A100, node="ampere", of_node=BULK, above=2.0**23),
    FitStep(tables=_A100, node="ampere", of_node=STEPS_OF_RING, most=2.0**23),
    FitStep(tables=of_systems(ALL, "a100_sxm"), node="ampere", of_node=ALL_TO_ALL),
    FitStep(tables=_H100, node="hopper", of_node=(*STEPS_OF_RING, *BULK, *NVLS)),
    FitStep(tables=of_systems(ALL, "h100_sxm", "h200_sxm"), node="hopper", of_node=ALL_TO_ALL),
    FitStep(tables=_B200, node="blackwell", of_node=(*STEPS_OF_RING, *BULK, *NVLS)),
    FitStep(
        tables=of_systems(ALL, "b200_sxm", "gb200"),
        node="blackwell",
        of_node=(*ALL_TO_ALL, "channel"),
    ),
    FitStep(
        tables=(
            "h100_16gpu_issue309_dell",
            "h100_32gpu_issue309_dell",
            "h100_16gpu_issue309_gjaion",
            "h100_32gpu_issue309_gjaion",
            "h100_16gpu_aws_p5_efa",
        ),
        node="hopper",
        of_node=("nvls_tree", "tree_keeps.ll", "tree_keeps.ll128"),
        networks=("infiniband", "efa"),
        of_network=("launch", "hop.ll", "hop.simple", "fill.time", "fill.half"),
    ),
    FitStep(
        tables=("h100_32gpu_issue309_dell", "h100_32gpu_issue309_gjaion"),
        networks=("infiniband",),
        of_network=("hop.ll128", "fraction"),
    ),
    FitStep(
        tables=("a100_16gpu_aws_p4de_efa",),
        node="ampere",
        of_node=("tree_keeps.ll", "tree_keeps.ll128"),
        networks=("efa-v1",),
        of_network=(*HOPS, "fraction", "fill.time", "fill.half"),
    ),
    FitStep(
        tables=("v100_16gpu_aws_p3dn_efa_ring",),
        networks=("efa-host",),
        of_network=(*HOPS, "keeps.ll", "keeps.ll128", "fraction"),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableError:
    """Absolute errors predicted/measured - 1 of one table, and of its rows above 64 KiB.

    The latter are NaN if it has none.
    """

    table: str
    rows: int
    median: float
    worst: float
    median_large: float
    worst_large: float


def table_errors(predict: Predict, collectives: Sequence[MeasuredCollective]) -> list[TableError]:
    """The errors of each table."""
    return [
        _table_error(table, predict, [row for row in collectives if row.table == table])
        for table in tables(collectives)
    ]


def _table_error(table: str, predict: Predict, rows: list[MeasuredCollective]) -> TableError:
    errors = [abs(predict(row) / row.time - 1) for row in rows]
    large = [error for error, row in zip(errors, rows, strict=True) if row.size > LARGE]
    return TableError(
        table=table,
        rows=len(rows),
        median=median(errors),
        worst=max(errors),
        median_large=median(large) if large else nan,
        worst_large=max(large, default=nan),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the errors by table and, with --fit, the fitted constants."""
    parser = ArgumentParser(prog="python -m benchmarks.published_nccl", description=__doc__)
    parser.add_argument("nccl_tests", type=Path)
    parser.add_argument("node_all_reduce", type=Path)
    parser.add_argument("by_system", type=Path, nargs="?", help="aiconfigurator_nccl.csv.gz")
    parser.add_argument("--fit", action="store_true", help="fit before the errors are printed")
    options = parser.parse_args(arguments)
    collectives, skipped = read(options.nccl_tests, options.node_all_reduce, options.by_system)
    constants = asdict(catalog.load("topologies/backends", "nccl", NcclConstants))
    if options.fit:
        constants = fitted(constants, collectives, STEPS)
        for path in (path for step in STEPS for path in step.paths):
            print(f"{path} = {get(constants, path):.4g}")
    _print_errors(predictor(constants), collectives)
    for table, reason in skipped.items():
        print(f"{table}: left out, {reason}")


def _print_errors(predict: Predict, collectives: Sequence[MeasuredCollective]) -> None:
    kept_out = alternate(collectives, 1)
    of_one_size = set(tables(collectives)) - set(tables(kept_out))
    kept_out += [row for row in collectives if row.table in of_one_size]
    print(f"{'table':32}{'runs':>5}{'median':>8}{'worst':>8}   above 64 KiB")
    for error in table_errors(predict, kept_out):
        print(
            f"{error.table:32}{error.rows:5}{error.median:8.1%}{error.worst:8.1%}"
            f"{error.median_large:8.1%}{error.worst_large:8.1%}"
        )


if __name__ == "__main__":
    main()
