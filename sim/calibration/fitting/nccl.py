"""Fit the constants of topologies/backends/nccl.toml to published nccl-tests, and say how well.

    python -m sim.calibration.fitting.nccl nccl_tests.csv vtrain_node_allreduce.csv [--fit]

Every other size of each table is fitted, the sizes between them are kept back; the printed errors
are of those alone, where a table has any. Stages follow the hardware: first what one node shows of
its GPUs and NVLink, then what several nodes show of their network.
"""

from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from sim.calibration.fitting.constants import Predict, Tree, alternate, best, get, table_errors
from sim.calibration.fitting.nccl_tables import Run, read
from sim.collectives.libraries.nccl import Nccl
from sim.collectives.libraries.nccl_constants import (
    Fill,
    NcclConstants,
    NetworkConstants,
    NodeConstants,
    PerProtocol,
    StepTime,
)
from sim.config import catalog


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Constants that are fitted together, and the tables that show them."""

    tables: tuple[str, ...]
    node: str = ""
    of_node: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    of_network: tuple[str, ...] = ()

    @property
    def paths(self) -> list[str]:
        """The constants as dotted paths."""
        node = [f"node.{self.node}.{key}" for key in self.of_node]
        return node + [f"network.{n}.{key}" for n in self.networks for key in self.of_network]


RING = ("launch", "hop.ll128", "hop.simple", "keeps.ll128", "ring", "fill.time", "fill.half")
HOPS = ("launch", "hop.ll", "hop.ll128", "hop.simple")
STAGES = (
    Stage(tables=("v100_node_vtrain",), node="volta", of_node=RING),
    Stage(tables=("a100_node_vtrain",), node="ampere", of_node=(*RING, "touch")),
    Stage(
        tables=("h100_8gpu_dgxc", "h100_8gpu_aws_p5_batch"),
        node="hopper",
        of_node=(
            *("launch", "hop.ll", "hop.ll128", "keeps.ll", "keeps.ll128"),
            *("nvls", "nvls_hop", "nvls_fill.time", "nvls_fill.half"),
        ),
    ),
    Stage(
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
    Stage(
        tables=("h100_32gpu_issue309_dell", "h100_32gpu_issue309_gjaion"),
        networks=("infiniband",),
        of_network=("hop.ll128", "fraction"),
    ),
    Stage(
        tables=("a100_16gpu_aws_p4de_efa",),
        node="ampere",
        of_node=("tree_keeps.ll", "tree_keeps.ll128"),
        networks=("efa-v1",),
        of_network=(*HOPS, "fraction", "fill.time", "fill.half"),
    ),
    Stage(
        tables=("v100_16gpu_aws_p3dn_efa_ring",),
        networks=("efa-host",),
        of_network=(*HOPS, "keeps.ll", "keeps.ll128", "fraction"),
    ),
)


def predicted(backend: Nccl, run: Run) -> float:
    """Seconds that the backend says the run takes, idle."""
    costs = backend.candidates(run.kind, run.size, run.shape, run.interconnect)
    return min(
        run.interconnect.duration(cost, run.shape)
        for cost in costs
        if run.forced in ("", cost.algorithm)
    )


def backend_of(constants: Tree) -> Nccl:
    """A backend with these constants, in SI units."""
    return Nccl(
        NcclConstants(
            node={name: _made(NodeConstants, table) for name, table in constants["node"].items()},
            network={
                name: _made(NetworkConstants, table) for name, table in constants["network"].items()
            },
        )
    )


C = TypeVar("C")
_INNER = {
    "hop": StepTime,
    "keeps": PerProtocol,
    "tree_keeps": PerProtocol,
    "fill": Fill,
    "nvls_fill": Fill,
}


def _made(kind: Callable[..., C], table: Tree) -> C:
    inner = {key: _INNER[key](**table[key]) for key in table.keys() & _INNER.keys()}
    return kind(**{**table, **inner})


def predictor(constants: Tree) -> Predict:
    """What the backend with these constants says of a run."""
    backend = backend_of(constants)
    return lambda run: predicted(backend, run)


def fitted(constants: Tree, runs: Sequence[Run], stages: Iterable[Stage] = STAGES) -> Tree:
    """The constants after all stages, each fitted on every other size of its tables."""
    for stage in stages:
        shown = [run for run in alternate(runs, 0) if run.table in stage.tables]
        constants = best(constants, stage.paths, shown, predictor)
    return constants


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the errors by table and, after --fit, the constants that were found."""
    parser = ArgumentParser(prog="python -m sim.calibration.fitting.nccl", description=__doc__)
    parser.add_argument("nccl_tests", type=Path)
    parser.add_argument("node_all_reduce", type=Path)
    parser.add_argument("--fit", action="store_true", help="fit before the errors are printed")
    options = parser.parse_args(arguments)
    runs, skipped = read(options.nccl_tests, options.node_all_reduce)
    constants = asdict(catalog.load("topologies/backends", "nccl", NcclConstants))
    if options.fit:
        constants = fitted(constants, runs)
        for path in (path for stage in STAGES for path in stage.paths):
            print(f"{path} = {get(constants, path):.4g}")
    _print_errors(predictor(constants), runs)
    for table, why in skipped.items():
        print(f"{table}: left out, {why}")


def _print_errors(predict: Predict, runs: Sequence[Run]) -> None:
    kept_back = alternate(runs, 1)
    alone = {run.table for run in runs} - {run.table for run in kept_back}  # tables of one size
    print(f"{'table':32}{'runs':>5}{'median':>8}{'worst':>8}   above 64 KiB")
    for error in table_errors(predict, kept_back + [run for run in runs if run.table in alone]):
        print(
            f"{error.table:32}{error.runs:5}{error.median:8.1%}{error.worst:8.1%}"
            f"{error.median_large:8.1%}{error.worst_large:8.1%}"
        )


if __name__ == "__main__":
    main()
