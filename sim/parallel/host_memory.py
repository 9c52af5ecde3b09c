"""What a job holds in the memory of its hosts."""

import numpy as np

from sim.hardware.cluster.topology import Topology
from sim.parallel.job import Job
from sim.parallel.memory import state_of
from sim.parallel.mesh import Mesh
from sim.parallel.offload import kept_on_host


def host_memory(job: Job, topology: Topology) -> float:
    """Bytes on the fullest node: what each of its ranks has offloaded. On drives states and
    parameters take none."""
    if not job.plan.offload:
        return 0.0
    each = np.array([_of_rank(job, stage) for stage in range(job.plan.pp)])
    ranks = np.arange(topology.gpus)
    stages = ranks // Mesh(axes=job.plan.mesh).stride("pp") % job.plan.pp
    return float(np.bincount(ranks // topology.gpus_per_node, weights=each[stages]).max())


def _of_rank(job: Job, stage: int) -> float:
    """Bytes of a rank: its states, and the activations of all passes that are under way."""
    chunks = job.chunks[stage]
    parameters = {} if job.plan.offload.nvme else job.parameters(chunks)
    states = sum(
        sum(state_of(job, group).on_host(count).values()) for group, count in parameters.items()
    )
    actions = job.plan.passes().actions[stage]
    kept = np.array([kept_on_host(job, chunk.kinds) for chunk in chunks])[actions.chunks]
    ways = np.select([actions.kinds == "F", actions.kinds == "W"], [1, 0], -1)
    return states + float(np.cumsum(ways * kept).max(initial=0.0))
