"""Fit the constants of NCCL's model in two steps: of the nodes, then of the network."""

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import TypeVar

from sim.analysis.calibration.fitting.constants import Predict, Tree, best
from sim.analysis.calibration.fitting.measured_collectives import MeasuredCollective, alternate
from sim.collectives.libraries.nccl import (
    AllToAll,
    Fill,
    Nccl,
    NcclConstants,
    NetworkConstants,
    NodeConstants,
    PerProtocol,
    StepTime,
)
from sim.config.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FitStep:
    """Constants that are fitted together: the keys `of_node` in the table of the node type `node`,
    and the keys `of_network` in the table of each of `networks`. They are fitted to calls of
    `tables` with more than `above` and at most `most` bytes."""

    tables: tuple[str, ...]
    node: str = ""
    of_node: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    of_network: tuple[str, ...] = ()
    above: float = 0.0
    most: float = inf

    @property
    def paths(self) -> list[str]:
        """The constants as dotted paths."""
        node = [f"node.{self.node}.{key}" for key in self.of_node]
        return node + [f"network.{n}.{key}" for n in self.networks for key in self.of_network]


RING = ("launch", "hop.ll128", "hop.simple", "keeps.ll128", "ring", "fill.time", "fill.half")
HOPS = ("launch", "hop.ll", "hop.ll128", "hop.simple")


def fitted(
    constants: Tree, collectives: Sequence[MeasuredCollective], steps: Iterable[FitStep]
) -> Tree:
    """Return the constants after all steps. Each step is fitted to every second message size of its
    tables; the other sizes test the fit."""
    for step in steps:
        shown = [
            collective
            for collective in alternate(collectives, 0)
            if collective.table in step.tables and step.above < collective.size <= step.most
        ]
        constants = best(constants, step.paths, shown, predictor)
    return constants


def predictor(constants: Tree) -> Predict:
    """Return a function that predicts a collective's seconds by a backend with these constants."""
    backend = backend_of(constants)
    return lambda collective: predicted(backend, collective)


def predicted(backend: Nccl, collective: MeasuredCollective) -> float:
    """Return the seconds that the backend predicts for the collective on an idle fabric."""
    return min(map(collective.duration, backend.candidates(collective)))


def backend_of(constants: Tree) -> Nccl:
    """Return a backend with these constants, in SI units."""
    return Nccl(
        NcclConstants(
            node={name: _typed(NodeConstants, table) for name, table in constants["node"].items()},
            network={
                name: _typed(NetworkConstants, table)
                for name, table in constants["network"].items()
            },
        )
    )


C = TypeVar("C")
_INNER: dict[str, Callable[..., object]] = {
    "hop": StepTime,
    "keeps": PerProtocol,
    "tree_keeps": PerProtocol,
    "fill": Fill,
    "nvls_fill": Fill,
    "all_to_all": lambda share, touch=0.0, fill=None: AllToAll(
        share=share, touch=touch, fill=Fill(**(fill or {}))
    ),
}


def _typed(kind: Callable[..., C], table: Tree) -> C:
    given = [key for key in table.keys() & _INNER.keys() if table[key] is not None]
    inner = {key: _INNER[key](**table[key]) for key in given}
    return kind(**{**table, **inner})
