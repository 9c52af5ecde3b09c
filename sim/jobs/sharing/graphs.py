"""Graphs over which workers gossip: their neighbours and mixing weights."""

from collections import Counter
from collections.abc import Callable, Sequence
from math import isqrt

from sim.config.errors import InputError

Edges = Sequence[Sequence[int]]
Neighbours = tuple[tuple[int, ...], ...]


def ring(n: int) -> Neighbours:
    """The neighbours of each worker on a ring: the worker before it and the worker after it.

    >>> ring(4)
    ((1, 3), (0, 2), (1, 3), (0, 2))
    """
    return tuple(tuple(sorted({(i - 1) % n, (i + 1) % n} - {i})) for i in range(n))


def complete(n: int) -> Neighbours:
    """Every worker is a neighbour of all other workers."""
    return tuple(tuple(j for j in range(n) if j != i) for i in range(n))


def star(n: int) -> Neighbours:
    """Worker 0 is the only neighbour of each other worker."""
    return (tuple(range(1, n)), *((0,) for _ in range(1, n)))


_SQUARE = 4  # workers; a torus of fewer workers is a ring in any case


def torus(n: int) -> Neighbours:
    """A grid that wraps around; it is as square as its number of workers allows."""
    rows = _rows(n)
    columns = n // rows

    def beside(i: int) -> set[int]:
        row, column = divmod(i, columns)
        around = ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1))
        return {r % rows * columns + c % columns for r, c in around} - {i}

    return tuple(tuple(sorted(beside(i))) for i in range(n))


def _rows(n: int) -> int:
    """The rows of the most square grid of n workers; 1 if n is prime."""
    return next(size for size in range(isqrt(n), 0, -1) if n % size == 0)


def exponential(n: int) -> Neighbours:
    """Neighbours are the workers 1, 2, 4 ... places away, both ways (Assran et al. 2019)."""
    hops = exponential_hops(n)
    return tuple(
        tuple(sorted({(i + sign * hop) % n for hop in hops for sign in (1, -1)} - {i}))
        for i in range(n)
    )


def exponential_hops(n: int) -> tuple[int, ...]:
    """The distances 1, 2, 4 ... below n to which push-sum sends in turn.

    >>> exponential_hops(8), exponential_hops(5)
    ((1, 2, 4), (1, 2, 4))
    """
    return tuple(1 << k for k in range(max((n - 1).bit_length(), 1)) if 1 << k < n) or (0,)


NAMED: dict[str, Callable[[int], Neighbours]] = {
    "ring": ring,
    "complete": complete,
    "star": star,
    "torus": torus,
    "exponential": exponential,
}


def graph(kind: str | Edges, n: int, *, where: str = "graph") -> Neighbours:
    """The neighbours of each of n workers, from a name (of `NAMED`) or a list of edges.

    Raises `InputError` if an edge leads nowhere, the graph is not connected, or a torus has a
    single row.
    """
    if kind == "torus" and n > _SQUARE and _rows(n) == 1:
        fault = f"a torus of {n} workers is a ring, as {n} is a prime"
        raise InputError(where, fault, f'set graph = "ring", or workers = {n + 1}')
    if isinstance(kind, str):
        return NAMED[kind](n)
    beside: list[set[int]] = [set() for _ in range(n)]
    for edge in kind:
        if len(edge) != 2 or edge[0] == edge[1] or not all(0 <= end < n for end in edge):
            fault = f"{list(edge)} is not an edge between two of {n} workers"
            raise InputError(where, fault, f"write [worker, worker] from 0 to {n - 1}")
        beside[edge[0]].add(edge[1])
        beside[edge[1]].add(edge[0])
    neighbours = tuple(tuple(sorted(others)) for others in beside)
    check_connected(neighbours, where)
    return neighbours


def mean_square_degree(kind: str | Edges, n: int) -> float:
    """The mean over workers of the squared number of neighbours. The complete graph has too many
    edges to be built; its mean follows from n alone.

    >>> mean_square_degree("complete", 5), mean_square_degree([[0, 1], [1, 2]], 3)
    (16.0, 2.0)
    """
    if kind == "complete":
        return float((n - 1) ** 2)
    if isinstance(kind, str):
        degrees = [len(others) for others in graph(kind, n)]
    else:
        degrees = list(Counter(end for edge in kind for end in edge).values())
    return sum(degree**2 for degree in degrees) / n


def check_connected(neighbours: Neighbours, where: str) -> None:
    """Raise `InputError` if no path leads from worker 0 to some other worker."""
    reached, frontier = {0}, [0]
    while frontier:
        new = [j for j in neighbours[frontier.pop()] if j not in reached]
        reached.update(new)
        frontier += new
    if lost := sorted(set(range(len(neighbours))) - reached):
        fault = f"the graph is not connected: no path leads from worker 0 to worker {lost[0]}"
        raise InputError(where, fault, "add an edge to this worker")


def mixing(neighbours: Neighbours) -> tuple[dict[int, float], ...]:
    """Each worker's symmetric mixing weights W_ij = 1 / (1 + max(d_i, d_j)), with d the number of
    neighbours. The rest is the worker's own weight W_ii.

    The weights add up to 1 by row and by column (Xiao, Boyd and Kim 2007).

    >>> mixing(ring(3))[0]
    {0: 0.33333333333333337, 1: 0.3333333333333333, 2: 0.3333333333333333}
    """
    degrees = [len(others) for others in neighbours]
    rows = []
    for i, others in enumerate(neighbours):
        row = {j: 1.0 / (1.0 + max(degrees[i], degrees[j])) for j in others}
        rows.append({i: 1.0 - sum(row.values()), **row})
    return tuple(rows)
