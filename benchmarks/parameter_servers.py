"""Measured runs of TensorFlow's parameter servers as jobs of `[sharing]` (tf_cnn_benchmarks).

    python -m benchmarks.parameter_servers TABLE.csv

What one GPU computes is the table's own row of one GPU; sharing, over several GPUs and nodes, is
what is predicted. Rows have the columns of `REQUIRED`. The ways of sharing are those of
tensorflow/benchmarks, scripts/tf_cnn_benchmarks/variable_mgr.py: "parameter_server" has the
variables on the CPU or each on one of the GPUs; "replicated" sums by NCCL or by copies
between GPUs, each variable on one of them; "distributed_replicated" adds up the gradients of a
node, lets servers on the nodes apply them in step, and copies the result to every GPU.
"""

import csv
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from sim.collectives.libraries import backend
from sim.config import reads
from sim.config.errors import InputError
from sim.engine.machine import Machine
from sim.hardware.cluster import topology
from sim.interface.document.terminal import aligned
from sim.jobs.sharing.methods.all_reduce import AllReduce
from sim.jobs.sharing.methods.parameter_server import ParameterServer
from sim.jobs.sharing.plan import Sharing
from sim.jobs.sharing.run import run
from sim.jobs.sharing.setup import assemble
from sim.jobs.sharing.tables import MeasuredStep
from sim.jobs.sharing.workload import Workload

Row = Mapping[str, str]

REQUIRED = (
    *("id", "system", "model", "gpus", "nodes", "batch_per_gpu", "data", "variable_update"),
    *("parameter_device", "parameter_servers", "step_time_s"),
)
PARAMETERS = {
    "resnet50": 25.56e6, "resnet152": 60.19e6,  # He et al. 2016, as torchvision counts them
    "inceptionv3": 23.83e6,  # Szegedy et al. 2016, without the auxiliary classifier
    "vgg16": 138.36e6,  # Simonyan and Zisserman 2015
    "alexnet": 61.10e6,  # Krizhevsky 2014, one column
}  # fmt: skip
_LAYERS = {"resnet50": 50, "resnet152": 152, "inceptionv3": 48, "vgg16": 16, "alexnet": 8}

# PCIe 3.0 x16 a GPU: 8 GT/s x 16 x 128/130 / 8, 26 bytes of headers for 128 of payload (PCI Express
# 3.0, section 2.2; Intel's root ports of the time take 128). p2.8xlarge has 10 Gb/s (AWS, EC2
# instance types); 1448 of 1526 bytes of an Ethernet frame are payload, one way about 25 us of TCP.
PCIE = {
    "node.bandwidth": "15.75 GB/s",
    "node.efficiency": 0.83,
    "gpus_per_node": 8,
    "gpus": 64,
    "network.kind": "ethernet",
    "network.bandwidth": "10 Gb/s",
    "network.latency": "25 us",
    "network.efficiency": 0.949,
}
# Four NVLinks of 20 GB/s each way (NVIDIA Tesla P100 white paper, WP-08019-001).
NVLINK = {"node.bandwidth": "80 GB/s"}
# Servers sum on CPUs: two sockets of four channels DDR4-2400, three quarters of them busy.
CPU_MEMORY = 115e9
STEPS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A row, its step in seconds and that of one GPU `alone`, or why it has none."""

    row: Row
    predicted: float | None = None
    alone: float = 0.0
    reason: str = ""

    @property
    def measured(self) -> float:
        return float(self.row["step_time_s"])

    @property
    def error(self) -> float | None:
        return None if self.predicted is None else self.predicted / self.measured - 1.0


def replay(rows: Sequence[Row]) -> list[Replayed]:
    """Every row of several GPUs; those of one are what they are predicted from."""
    return [_replayed(row, rows) for row in rows if int(row["gpus"]) > 1]


def _replayed(row: Row, rows: Sequence[Row]) -> Replayed:
    if row["model"] not in PARAMETERS:
        return Replayed(row=row, reason=f"no parameter count of {row['model']} is known")
    alone = _alone(row, rows)
    if alone is None:
        return Replayed(row=row, reason="no row of one GPU of this model, batch and data")
    plan, machine = _job(row)
    seconds = float(alone["step_time_s"])
    step = MeasuredStep(
        forward=seconds / 3,
        backward=seconds * 2 / 3,
        parameters=PARAMETERS[row["model"]],
        layers=_LAYERS[row["model"]],
    )
    batch = int(row["batch_per_gpu"]) * plan.own_gpus(machine.topology.gpus_per_node)
    workload = Workload.measured(step, width=4.0, batch=batch)
    pool = run(assemble(plan, machine, workload, name=row["id"], keep_spans=0))
    return Replayed(row=row, predicted=pool.end / STEPS, alone=seconds)


def _alone(row: Row, rows: Sequence[Row]) -> Row | None:
    """One GPU with the same work, of the same campaign where it has one."""
    same = ("model", "batch_per_gpu", "data")
    alike = [
        other
        for other in rows
        if int(other["gpus"]) == 1 and all(other[key] == row[key] for key in same)
    ]
    own = [other for other in alike if other["system"] == row["system"]]
    near = [other for other in alike if row["system"].startswith(other["system"])]
    return next(iter([*own, *near]), None)


def _job(row: Row) -> tuple[Sharing, Machine]:
    gpus, update = int(row["gpus"]), row["variable_update"]
    usual: dict[str, Any] = dict(workers=gpus, steps=STEPS, server_memory=CPU_MEMORY)
    if update == "replicated (NCCL)":
        linked = Machine(topology.load("dgx-1-v100", NVLINK), backend.load("nccl"))
        return AllReduce(workers=gpus, steps=STEPS, overlap=True), linked
    pcie = Machine(topology.load("example-pcie", PCIE), backend.load("nccl"))
    if update.startswith("distributed_replicated"):
        own, nodes = gpus // int(row["nodes"]), int(row["nodes"])
        shards = min(int(row["parameter_servers"]), nodes)
        usual |= dict(worker=own, workers=nodes, shards=shards, servers="colocated", overlap=True)
        return ParameterServer(**usual), pcie
    if row["parameter_device"] == "gpu" or update == "replicated (no NCCL)":
        # Sums in a GPU's memory cost next to nothing.
        usual |= dict(shards=gpus, servers="colocated", server_passes=0.0, overlap=True)
        return ParameterServer(**usual), pcie
    return ParameterServer(**usual, overlap=True), _around_a_cpu(pcie)


def _around_a_cpu(pcie: Machine) -> Machine:
    """GPUs around a CPU: each the end of a PCIe link of its own, the CPU's side as wide as four of
    them (two sockets, on each two of 16 lanes)."""
    whole = pcie.topology
    assert whole.network is not None
    assert whole.node is not None
    link: Any = {key: getattr(whole.node, key) for key in ("bandwidth", "latency", "efficiency")}
    network: Any = replace(whole.network, nics=1, **link)
    alone = replace(whole, gpus=1, gpus_per_node=1, node=None, network=network)
    return Machine(alone, pcie.backend)


def text(found: Sequence[Replayed]) -> str:
    """All rows, and the mean absolute error of those that are predicted."""
    cells = [
        (
            one.row["id"],
            f"{one.measured:.3f} s",
            one.reason if one.error is None else f"{one.predicted:.3f} s  {100 * one.error:+.1f} %",
        )
        for one in found
    ]
    return "\n".join([aligned(cells), *_means(found)])


def _means(found: Sequence[Replayed]) -> list[str]:
    """Errors by way of sharing, beside those of a step that takes no longer than one GPU's."""
    kinds: dict[str, list[Replayed]] = {}
    for one in found:
        if one.error is not None:
            update = one.row["variable_update"].partition(" (sync")[0]
            for name in ("all", f"{update} {one.row['parameter_device']}".rstrip()):
                kinds.setdefault(name, []).append(one)
    lines = []
    for name, rows in kinds.items():
        errors = [one.error for one in rows if one.error is not None]
        free = fmean(abs(one.alone / one.measured - 1.0) for one in rows)
        lines.append(
            f"{name}: MAPE {100 * fmean(map(abs, errors)):.1f} %, bias {100 * fmean(errors):+.1f} %"
            f" of {len(errors)} rows; were sharing free, {100 * free:.1f} %"
        )
    return lines


def read(path: Path) -> list[Row]:
    """The rows of a table. Raises `InputError`."""
    rows: list[Row] = list(csv.DictReader(reads.text(path).splitlines()))
    missing = set(REQUIRED) - set(rows[0] if rows else ())
    if missing:
        raise InputError(str(path), f"column {min(missing)} is missing", "add it")
    return rows


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("python -m benchmarks.parameter_servers TABLE.csv")
    try:
        print(text(replay(read(Path(sys.argv[1])))))
    except InputError as error:
        sys.exit(f"error: {error}")
