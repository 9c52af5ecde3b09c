"""The placement of servers, and the share of the weights that each server holds."""

from collections.abc import Iterable, Sequence

from sim.config.errors import InputError
from sim.engine.live_cluster import Endpoint
from sim.jobs.sharing.plan import ServerBased, Sharing


def reserved_gpus(plan: Sharing, gpus_per_node: int) -> int:
    """The number of GPU slots that the hosts of dedicated or spare servers occupy."""
    if isinstance(plan, ServerBased) and plan.servers != "colocated":
        return plan.shards * gpus_per_node
    return 0


def server_shares(
    plan: Sharing, workers: Sequence[Endpoint], used: int, gpus_per_node: int, where: str
) -> tuple[dict[Endpoint, float], int]:
    """Each host's share of the weights, and how many GPUs the machine needs in all. Workers take
    `used` of these GPUs."""
    if not isinstance(plan, ServerBased):
        return {}, whole_nodes(used, gpus_per_node)
    if plan.servers == "colocated":
        if plan.shards > len(workers):
            fault = f"shards = {plan.shards} exceeds the {len(workers)} workers whose hosts serve"
            raise InputError(where, fault, f"set shards to at most {len(workers)}")
        places = (i * len(workers) // plan.shards for i in range(plan.shards))  # over all nodes
        hosts = tuple(workers[place] for place in places)
        return dict.fromkeys(hosts, 1.0 / len(hosts)), whole_nodes(used, gpus_per_node)
    first = -(-used // gpus_per_node)
    hosts = tuple(
        Endpoint(tuple(range(node * gpus_per_node, (node + 1) * gpus_per_node)))
        for node in range(first, first + plan.shards)
    )
    shares = dict.fromkeys(hosts, 1.0 / plan.shards)
    if plan.servers == "spare":
        shares = byteps_shares(workers, hosts)
    return shares, (first + plan.shards) * gpus_per_node


def byteps_shares(workers: Sequence[Endpoint], spare: Sequence[Endpoint]) -> dict[Endpoint, float]:
    """The share of the gradients that each host sums so that all NICs carry equal bytes (Jiang et
    al. 2020). For n workers and k <= n spare hosts, c = n^2 + kn - 2k. A spare host sums 2(n-1)/c,
    a worker's host (n-k)/c.

    >>> a, b, c = (Endpoint((i,)) for i in range(3))
    >>> list(byteps_shares([a, b], [c]).values())  # the spare host sums half
    [0.25, 0.25, 0.5]
    """
    n, k = len(workers), min(len(spare), len(workers))
    if n == 1:
        return {spare[0]: 1.0}
    whole = n * n + k * n - 2 * k
    shares = {worker: (n - k) / whole for worker in workers if n > k}
    return shares | dict.fromkeys(spare[:k], 2 * (n - 1) / whole)


def guest_regions(
    plan: Sharing, workers: Sequence[Endpoint], servers: Iterable[Endpoint], gpus_per_node: int
) -> dict[int, int]:
    """The region of each node that has servers but no workers. These nodes are spread over the
    workers' regions: in a region of their own, all their traffic would pass a single link."""
    if plan.regions is None:
        return {}
    nodes = [host.first // gpus_per_node for host in servers if host not in workers]
    regions = 1 + workers[-1].first // gpus_per_node // plan.regions.nodes
    return {node: place * regions // len(nodes) for place, node in enumerate(nodes)}


def whole_nodes(gpus: int, gpus_per_node: int) -> int:
    """GPUs rounded up to whole nodes; a single node may be partly used."""
    return gpus if gpus <= gpus_per_node else -(-gpus // gpus_per_node) * gpus_per_node
