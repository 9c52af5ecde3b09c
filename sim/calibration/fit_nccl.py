"""Fit the constants of topologies/backends/nccl.toml to published nccl-tests, and say how well.

    python -m sim.calibration.fit_nccl nccl_tests.csv vtrain_node_allreduce.csv [--fit]

Every other size of each table is fitted, the sizes between them are kept back; the printed errors
are of those alone, where a table has any. Stages follow the hardware: first what one node shows of
its GPUs and NVLink, then what several nodes show of their network.
"""

from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from math import exp, log, nan
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from sim import library
from sim.calibration.nccl_tables import Run, read
from sim.collectives.nccl import Nccl
from sim.collectives.nccl_constants import Constants, Fill, Hop, Network, Node, Per

Tree = dict[str, Any]  # constants as nested tables
LARGE = 64 * 1024  # bytes; what training sends is above
PULL = 0.03  # error (of the logarithm) that a factor of e away from the present constant costs


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
    wires = backend.candidates(run.kind, run.size, run.shape, run.fabric)
    return min(
        run.fabric.duration(wire, run.shape) for wire in wires if run.forced in ("", wire.algorithm)
    )


def backend_of(constants: Tree) -> Nccl:
    """A backend with these constants, in SI units."""
    return Nccl(
        Constants(
            node={name: _made(Node, table) for name, table in constants["node"].items()},
            network={name: _made(Network, table) for name, table in constants["network"].items()},
        )
    )


C = TypeVar("C")
_INNER = {"hop": Hop, "keeps": Per, "tree_keeps": Per, "fill": Fill, "nvls_fill": Fill}


def _made(kind: Callable[..., C], table: Tree) -> C:
    inner = {key: _INNER[key](**table[key]) for key in table.keys() & _INNER.keys()}
    return kind(**{**table, **inner})


def fitted(constants: Tree, runs: Sequence[Run], stages: Iterable[Stage] = STAGES) -> Tree:
    """The constants after all stages, each fitted on every other size of its tables.

    Minimises the soft-L1 of log(predicted / measured) over the logarithms of the constants, with
    a weak pull to where they start, so that what the tables do not show stays as it was.
    """
    for stage in stages:
        shown = [run for run in alternate(runs, 0) if run.table in stage.tables]
        constants = _after(constants, stage.paths, shown)
    return constants


def _after(constants: Tree, paths: list[str], runs: list[Run]) -> Tree:
    from scipy.optimize import least_squares  # type: ignore[import-untyped]  # it ships no types

    start = [log(_get(constants, path)) for path in paths]

    def with_values(logs: Iterable[float]) -> Tree:
        tried = deepcopy(constants)
        for path, value in zip(paths, logs, strict=True):
            _put(tried, path, exp(value))
        return tried

    found = least_squares(
        _residuals(with_values, start, runs),
        start,
        bounds=([-60.0] * len(paths), [_ceiling(path) for path in paths]),
        loss="soft_l1",
        f_scale=0.05,
        diff_step=1e-3,
        max_nfev=100,
    )
    return with_values(found.x)


def _residuals(
    with_values: Callable[[Iterable[float]], Tree], start: list[float], runs: list[Run]
) -> Callable[[Sequence[float]], list[float]]:
    def residuals(logs: Sequence[float]) -> list[float]:
        backend = backend_of(with_values(logs))
        errors = [
            log(predicted(backend, run) / run.time) * (1.0 if run.size > LARGE else 0.5)
            for run in runs
        ]
        return errors + [PULL * (x - x0) for x, x0 in zip(logs, start, strict=True)]

    return residuals


def _ceiling(path: str) -> float:
    """Fractions of a line rate stay below 1, times and sizes are free."""
    key = path.split(".")[-1]
    free = key in ("launch", "time", "half", "touch", "nvls_hop") or ".hop." in path
    return 60.0 if free else 1e-9


def alternate(runs: Sequence[Run], first: int) -> list[Run]:
    """The runs at every other size of their table, from the first or the second size on."""
    sizes: dict[str, list[float]] = {}
    for run in runs:
        sizes.setdefault(run.table, []).append(run.size)
    kept = {table: set(sorted(set(found))[first::2]) for table, found in sizes.items()}
    return [run for run in runs if run.size in kept[run.table]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableError:
    """Absolute errors predicted/measured - 1 of one table, and of its runs above 64 KiB.

    The latter are NaN where it has none.
    """

    table: str
    runs: int
    median: float
    worst: float
    median_large: float
    worst_large: float


def table_errors(backend: Nccl, runs: Sequence[Run]) -> list[TableError]:
    """One line for each table."""
    return [
        _table_error(table, backend, [run for run in runs if run.table == table])
        for table in dict.fromkeys(run.table for run in runs)
    ]


def _table_error(table: str, backend: Nccl, runs: list[Run]) -> TableError:
    every = [abs(predicted(backend, run) / run.time - 1) for run in runs]
    large = [error for error, run in zip(every, runs, strict=True) if run.size > LARGE]
    return TableError(
        table=table,
        runs=len(runs),
        median=median(every),
        worst=max(every),
        median_large=median(large) if large else nan,
        worst_large=max(large, default=nan),
    )


def _get(tree: Mapping[str, Any], path: str) -> float:
    value: Any = tree
    for key in path.split("."):
        value = value[key]
    return float(value)


def _put(tree: Tree, path: str, value: float) -> None:
    *keys, last = path.split(".")
    for key in keys:
        tree = tree[key]
    tree[last] = value


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the errors by table and, after --fit, the constants that were found."""
    parser = ArgumentParser(prog="python -m sim.calibration.fit_nccl", description=__doc__)
    parser.add_argument("nccl_tests", type=Path)
    parser.add_argument("node_all_reduce", type=Path)
    parser.add_argument("--fit", action="store_true", help="fit before the errors are printed")
    options = parser.parse_args(arguments)
    runs, skipped = read(options.nccl_tests, options.node_all_reduce)
    constants = asdict(library.load("topologies/backends", "nccl", Constants))
    if options.fit:
        constants = fitted(constants, runs)
        for path in (path for stage in STAGES for path in stage.paths):
            print(f"{path} = {_get(constants, path):.4g}")
    _print_errors(backend_of(constants), runs)
    for table, why in skipped.items():
        print(f"{table}: left out, {why}")


def _print_errors(backend: Nccl, runs: Sequence[Run]) -> None:
    kept_back = alternate(runs, 1)
    alone = {run.table for run in runs} - {run.table for run in kept_back}  # tables of one size
    print(f"{'table':32}{'runs':>5}{'median':>8}{'worst':>8}   above 64 KiB")
    for error in table_errors(backend, kept_back + [run for run in runs if run.table in alone]):
        print(
            f"{error.table:32}{error.runs:5}{error.median:8.1%}{error.worst:8.1%}"
            f"{error.median_large:8.1%}{error.worst_large:8.1%}"
        )


if __name__ == "__main__":
    main()
