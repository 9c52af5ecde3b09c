"""How much faster is a recorded step with a faster resource? It is played on the clock: no static
graph replays streams of kernels beside one another, as FSDP has them."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from sim.config.progress import counted
from sim.engine import clock
from sim.engine.columns.weights import Floats
from sim.engine.fold import fold
from sim.engine.folded import FoldedProgram, Traffic
from sim.jobs.recorded.setup import Recorded
from sim.program.causes import HOST
from sim.uncertainty.draws import LATENCY, Split, bandwidth, by_cause, split

FAMILIES = ("gemm", "attention", "stream")


class Clocked:
    """A recorded step in `kinds` of resources, as `Split` for plans; every column is played."""

    def __init__(self, recorded: Recorded) -> None:
        self.recorded = recorded
        causes = tuple(dict.fromkeys(transfer.cause for transfer in self._folded({}).transfers))
        self.keys = (*FAMILIES, HOST, LATENCY, *causes)
        self.kinds = (*FAMILIES, HOST, LATENCY, *map(bandwidth, causes))

    def times(self, factors: Floats) -> Floats:
        """Step times (s) of columns whose kinds take so many times as long [kinds, columns]."""
        columns = counted(factors.T.tolist(), total=factors.shape[1], unit="play")
        by_key = (dict(zip(self.keys, column, strict=True)) for column in columns)
        return np.array(
            [clock.play(self._folded(factors_by_key)).step_time for factors_by_key in by_key]
        )

    def _folded(self, factors: Mapping[str, float]) -> FoldedProgram:
        found = fold(self.recorded.slower(factors), self.recorded.machine)
        for transfer in found.transfers:
            latency, links = (factors.get(key, 1.0) for key in (LATENCY, transfer.cause))
            transfer.traffic = _faster(transfer.traffic, latency, links)
        return found


def speeds(setup: Recorded, *, many: bool = False) -> Clocked | Split:
    """The step with resources faster or slower; `many` columns are evaluated by a compiled replay.
    Raises `InputError` where a replay does not hold."""
    return split(setup.machine, setup.program, by_cause) if many else Clocked(setup)


def _faster(traffic: Traffic, latency: float, links: float) -> Traffic:
    return replace(
        traffic,
        latency=latency * traffic.latency,
        size=links * traffic.size,
        seconds=links * traffic.seconds,
        at_once=latency * traffic.latency + links * max(traffic.at_once - traffic.latency, 0.0),
    )
