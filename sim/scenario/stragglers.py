"""The slow ranks and links that the stragglers of a scenario describe."""

from collections.abc import Iterable, Sequence

from sim.config.errors import InputError
from sim.hardware.cluster.slow_links import shared as with_traffic
from sim.hardware.cluster.slow_links import slowed as with_slow_link
from sim.hardware.cluster.topology import Topology
from sim.parallel.mesh import Mesh
from sim.parallel.plan import Plan
from sim.scenario.scenario import Straggler


def slowed(
    topology: Topology, plan: Plan | None, stragglers: Sequence[Straggler], name: str, ranks: int
) -> tuple[Topology, dict[int, float]]:
    """Return the cluster with slow links, and the factors by which kernels of slow ranks take
    longer. A job without a `plan` has no stages. Raises `InputError`."""
    slowdown: dict[int, float] = {}
    for number, straggler in enumerate(stragglers):
        where = f"{name}, straggler {number + 1}"
        if straggler.link is not None and straggler.traffic is not None:
            topology = with_traffic(topology, straggler.link, straggler.traffic)
        elif straggler.link is not None:
            topology = with_slow_link(topology, straggler.link, straggler.factor or 1.0)
        for rank in _slow_ranks(straggler, topology, plan, ranks, where):
            slowdown[rank] = slowdown.get(rank, 1.0) * (straggler.factor or 1.0)
    return topology, slowdown


def _slow_ranks(
    straggler: Straggler, topology: Topology, plan: Plan | None, ranks: int, where: str
) -> Iterable[int]:
    each = topology.gpus_per_node
    if straggler.rank is not None:
        _check(where, "rank", straggler.rank, ranks)
        return [straggler.rank]
    if straggler.node is not None:
        _check(where, "node", straggler.node, -(-ranks // each))
        return range(straggler.node * each, min((straggler.node + 1) * each, ranks))
    if straggler.stage is not None:
        if plan is None:
            fault = "workers that share updates have no stages"
            raise InputError(where, fault, "name a rank or a node")
        _check(where, "stage", straggler.stage, plan.pp)
        return _ranks_of_stage(plan, straggler.stage)
    return []


def _ranks_of_stage(plan: Plan, stage: int) -> list[int]:
    mesh = Mesh(axes=plan.mesh)
    return [rank for rank in range(mesh.size) if mesh.coordinates(rank)["pp"] == stage]


def _check(where: str, key: str, value: int, size: int) -> None:
    if not 0 <= value < size:
        raise InputError(where, f"there is no {key} {value}", f"use 0 to {size - 1}")
