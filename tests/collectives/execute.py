"""The first reading: run the rounds on arrays; every rank must end with the right data.

>>> from sim.collectives.algorithms import ring
>>> execute(ring.all_reduce(3), np.eye(3))
array([[1., 1., 1.],
       [1., 1., 1.],
       [1., 1., 1.]])
"""

import numpy as np
from numpy.typing import NDArray

from sim.collectives.schedule import CollectiveSchedule, Round

Array = NDArray[np.float64]
Store = dict[int, Array]  # the chunks that one rank holds


def execute(schedule: CollectiveSchedule, inputs: Array) -> Array:
    """What the ranks hold afterwards.

    - all_reduce: (n, S) -> (n, S); reduce_scatter: (n, S) -> (n, S/n)
    - all_gather: (n, S/n) -> (n, S)
    - broadcast: (S,) -> (n, S); reduce: (n, S) -> (S,)
    - all_to_all: inputs[s, d], what s has for d -> outputs[d, s]
    - point_to_point: (S,) -> (S,); sendrecv: (n, S) -> (n, S)
    - gather: (n, S/n) -> (S,); scatter: (S,) -> (n, S/n)

    S must be a multiple of the chunks. Raises `ValueError` where a rank sends data that it lacks.
    """
    stores = _given(schedule, np.asarray(inputs, dtype=np.float64))
    for number, round_ in enumerate(schedule.rounds):
        _play(round_, stores, number)
    return _result(schedule, stores)


def _play(round_: Round, stores: list[Store], number: int) -> None:
    """All sends of a round read before any of them writes."""
    for send in round_:
        if send.chunk not in stores[send.src]:
            raise ValueError(f"round {number}: rank {send.src} has no chunk {send.chunk} to send")
    moving = [stores[send.src][send.chunk] for send in round_]
    for send, data in zip(round_, moving, strict=True):
        store = stores[send.dst]
        store[send.chunk] = store[send.chunk] + data if send.reduce else data


def _given(schedule: CollectiveSchedule, inputs: Array) -> list[Store]:
    n, chunks = schedule.ranks, schedule.chunks
    match schedule.kind:
        case "all_reduce" | "reduce_scatter" | "reduce" | "sendrecv":
            return [dict(enumerate(np.split(inputs[rank], chunks))) for rank in range(n)]
        case "all_gather" | "gather":
            own = chunks // n
            return [
                {rank * own + i: part for i, part in enumerate(np.split(inputs[rank], own))}
                for rank in range(n)
            ]
        case "all_to_all":
            return [{s * n + d: inputs[s, d] for d in range(n)} for s in range(n)]
    return [dict(enumerate(np.split(inputs, chunks))), *({} for _ in range(1, n))]


def _result(schedule: CollectiveSchedule, stores: list[Store]) -> Array:
    n, chunks = schedule.ranks, schedule.chunks
    match schedule.kind:
        case "reduce_scatter" | "scatter":
            own = chunks // n
            return np.stack([_joined(stores[r], range(r * own, r * own + own)) for r in range(n)])
        case "all_to_all":
            return np.stack([np.stack([stores[d][s * n + d] for s in range(n)]) for d in range(n)])
        case "reduce" | "gather":
            return _joined(stores[0], range(chunks))
        case "point_to_point":
            return _joined(stores[1], range(chunks))
    return np.stack([_joined(store, range(chunks)) for store in stores])


def _joined(store: Store, chunks: range) -> Array:
    return np.concatenate([store[chunk] for chunk in chunks])
