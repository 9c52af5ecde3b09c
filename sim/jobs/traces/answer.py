"""`sim.replay`: traces of real steps, played again, by the words of the command."""

import os
from collections.abc import Mapping
from pathlib import Path

from sim.config import gate
from sim.config.errors import InputError
from sim.engine.machine import Machine
from sim.hardware.cluster import topology as topologies
from sim.hardware.cluster.topology import Topology
from sim.jobs.traces.changes import Changes, Overlap
from sim.jobs.traces.replay import Replay
from sim.jobs.traces.replay import replay as played
from sim.scenario.machine import machine


def replay(
    *traces: str | os.PathLike[str],
    kernels: Mapping[str, float] | None = None,
    host: float = 1.0,
    topology: str | Topology | None = None,
    gpus: int | None = None,
    overlap: Overlap = "as-is",
    remove: str = "",
) -> Replay:
    """Play the steps of PyTorch profiler traces, one a rank, as they were and with changes.

    `kernels` are factors on the seconds of kernels with such a text in their names, `host` one on
    the host's. Collectives take as long as on so many `gpus` of a `topology`; `overlap` "none"
    lets none run beside kernels, "full" no kernel wait for one; operators named `remove` are left
    out. Raises `InputError`.
    """
    for where, factor in [
        ("--host", host),
        *((f"--kernels {k}", v) for k, v in (kernels or {}).items()),
    ]:
        if (fault := gate.fault_of(factor)) or factor <= 0:
            raise InputError(where, f"{factor} {fault or 'is not positive'}", "write a factor")
    if gpus is not None and topology is None:
        raise InputError("--gpus", "changes no collective by itself", "name the --topology too")
    if not traces:
        raise InputError("sim.replay", "no traces", "give that of a rank, or of several")
    changes = Changes(
        kernels=tuple((kernels or {}).items()),
        host=host,
        machine=None if topology is None else _machine(topology, gpus),
        overlap=overlap,
    )
    changed = None if changes == Changes() else changes
    return played([Path(one) for one in traces], changed, removed=remove)


def _machine(given: str | Topology, gpus: int | None) -> Machine:
    own = topologies.load(given, where="--topology") if isinstance(given, str) else given
    return machine(own.with_gpus(gpus or own.gpus), None, (), own.name)
