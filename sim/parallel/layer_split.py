"""How many layers a pipeline stage holds: the model cut into contiguous pieces.

A split lists the layers of each piece in the order of the model. The first piece also holds the
embedding, the last piece the head (final norm and logits), so a fair split gives these two pieces
fewer layers. Costs are in layers: an embedding that takes no time costs 0; a head costs 2.2 if its
products take 2.2 times as long as a layer's.
"""

import math
from collections.abc import Callable, Sequence
from heapq import heapify, heapreplace
from itertools import accumulate
from typing import Literal, get_args

from sim.config.errors import InputError

Balance = Literal["even", "ends", "cost", "threshold", "quota", "front"]

WHERE, LAYERS = "plan, balance", "plan, layers"

Split = tuple[int, ...]


def split(
    layers: int,
    stages: int,
    chunks: int = 1,
    *,
    balance: Balance | Sequence[int] = "even",
    head: float = 0.0,
    embedding: float = 0.0,
    costs: Sequence[float] = (),
) -> Split:
    """Cut `layers` into `chunks` pieces for each of `stages`, by a rule or by explicit counts.

    `head` and `embedding` are the costs of both ends in layers, for "cost", "threshold" and
    "quota". `costs` are the costs of the layers, for "cost", if they differ. Raises `InputError`
    with a remedy if the layers cannot be split in this way.

    >>> split(126, 16, balance="ends")
    (7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7)
    """
    if not isinstance(balance, str):
        return explicit(balance, layers, stages, chunks)
    if balance not in get_args(Balance):
        known = ", ".join(get_args(Balance))
        raise InputError(WHERE, f"no balance named {balance!r}", f"known: {known}, or a list")
    ways: dict[str, Callable[[], Split]] = {
        "even": lambda: even(layers, stages, chunks),
        "ends": lambda: short_ends(layers, stages, chunks),
        "cost": lambda: by_cost(
            layers, stages, chunks, head=head, embedding=embedding, costs=costs
        ),
        "threshold": lambda: by_threshold(layers, stages, chunks, head=head, embedding=embedding),
        "quota": lambda: by_quota(layers, stages, chunks, head=head, embedding=embedding),
        "front": lambda: fuller_front(layers, stages, chunks),
    }
    return ways[balance]()


def even(layers: int, stages: int, chunks: int = 1) -> Split:
    """Give every chunk the same number of layers, as Megatron-LM demands by default.

    >>> even(4, 2)
    (2, 2)
    """
    pieces = _pieces(stages, chunks)
    if layers % pieces or layers < 1:
        raise InputError(WHERE, *_uneven(layers, stages, chunks))
    return _split([layers // pieces] * pieces, layers)


def short_ends(layers: int, stages: int, chunks: int = 1) -> Split:
    """Give each of p v chunks k layers, but the first and the last k-1: k p v - 2 layers in all.

    Source: Llama 3 (arXiv 2407.21783, section 3.3.2: 126 layers on 16 stages); Zero Bubble (arXiv
    2401.10241, section 5.1); Megatron-LM's --account-for-embedding-in-pipeline-split with
    --account-for-loss-in-pipeline-split.

    >>> short_ends(22, 8, chunks=3)[:2]
    (0, 1)
    """
    pieces = _pieces(stages, chunks)
    if (layers + 2) % pieces or layers < 1:
        raise InputError(WHERE, *_uneven(layers, stages, chunks))
    each = (layers + 2) // pieces
    counts = [each] * pieces
    counts[0] -= 1
    counts[-1] -= 1
    return _split(counts, layers)


def fuller_front(layers: int, stages: int, chunks: int = 1) -> Split:
    """Give every chunk the same number of layers; the first chunks share the remainder.

    Source: NVIDIA NeMo AutoModel, nemo_automodel/components/distributed/pipelining/functional.py,
    generate_hf_model_fqn_per_model_part.

    >>> fuller_front(7, 4)
    (2, 2, 2, 1)
    """
    pieces = _pieces(stages, chunks)
    each, more = divmod(layers, pieces)
    if not each:
        raise InputError(WHERE, *_uneven(layers, stages, chunks))
    return _split([each + (number < more) for number in range(pieces)], layers)


def explicit(counts: Sequence[int], layers: int, stages: int, chunks: int = 1) -> Split:
    """Return the counts that the user wrote, one for each chunk in the order of the model.

    >>> explicit([3, 5], layers=8, stages=2)
    (3, 5)
    """
    pieces = _pieces(stages, chunks)
    if len(counts) != pieces:
        fault = f"{len(counts)} counts for {_product(stages, chunks)}"
        raise InputError(LAYERS, fault, f"write {pieces} counts, or leave them out")
    if min(counts) < 0:
        raise InputError(LAYERS, f"a chunk of {min(counts)} layers", "write counts >= 0")
    if sum(counts) != layers:
        fault = f"the counts add up to {sum(counts)} but the model has {layers} layers"
        raise InputError(LAYERS, fault, "mend the counts")
    return _split(list(counts), layers)


def by_cost(
    layers: int,
    stages: int,
    chunks: int = 1,
    *,
    head: float = 0.0,
    embedding: float = 0.0,
    costs: Sequence[float] = (),
) -> Split:
    """Return the split whose costliest chunk is cheapest, including embedding and head.

    Each layer goes to the chunk that is cheapest so far (to the last of several, as early stages
    keep more activations). `sim.parallel.partition` splits layers of unequal `costs`.

    >>> by_cost(32, 4, head=2.2)
    (8, 9, 9, 6)
    """
    pieces = _pieces(stages, chunks)
    if len(set(costs)) > 1 and pieces <= layers + 2:
        from sim.parallel.partition import partition

        return _split(partition(tuple(costs), pieces, first=embedding, last=head), layers)
    fixed = [0.0] * pieces
    fixed[0] += embedding
    fixed[-1] += head
    queue = [(cost, -piece) for piece, cost in enumerate(fixed)]
    heapify(queue)
    counts = [0] * pieces
    for _ in range(layers):
        cost, piece = queue[0]
        counts[-piece] += 1
        heapreplace(queue, (cost + 1.0, piece))
    return _split(counts, layers)


def by_threshold(
    layers: int, stages: int, chunks: int = 1, *, head: float = 0.0, embedding: float = 0.0
) -> Split:
    """nanotron's split: a chunk ends with the block that takes the running cost past its share.

    Blocks are embedding, layers, final norm and head; chunk i of n ends with the block after which
    the summed cost exceeds (i+1)/n of the whole. So early chunks get the remaining layers. Source:
    nanotron, models/base.py, `build_model`, where a layer of width h and inner width f costs 4 h^2
    + 3 h f, a head of V words V h (models/llama.py, `get_block_compute_costs`). With a costly head
    the last chunk can be empty. Here this is an error; in nanotron, only with data parallelism.

    Llama 3 8B on 8 stages, as the nanotron course prints it (embedding and five layers first):

    >>> head = 128256 * 4096 / (4 * 4096**2 + 3 * 14336 * 4096)
    >>> by_threshold(32, 8, head=head)
    (5, 4, 4, 5, 4, 4, 4, 2)
    """
    pieces = _pieces(stages, chunks)
    costs = [embedding, *[1.0] * layers, 0.0, head]
    running = list(accumulate(costs))
    place, places = 0, []
    for cost in running:
        places.append(place)
        place += cost > running[-1] * ((place + 1) / pieces)
    counts = [places[1:-2].count(piece) for piece in range(pieces)]
    if places[-1] != pieces - 1:
        fault = f"the head alone fills chunk {places[-1]} of {pieces}, later chunks stay empty"
        raise InputError(WHERE, fault, 'use fewer stages, or balance = "cost"')
    return _split(counts, layers)


def by_quota(
    layers: int, stages: int, chunks: int = 1, *, head: float = 0.0, embedding: float = 0.0
) -> Split:
    """`by_threshold` without empty chunks: a chunk ends once it has its quota; the head is last.

    Chunk i of n ends when the running cost reaches (i+1)/n of the whole, or earlier if a later
    chunk, except the last, would get no layer. In nanotron's sweep on H100 (memory_gb of
    nanotron_h100.csv) the first of 2, 4, 8 and 16 stages had 10, 5, 3 and 2 layers (16 layers, a
    head of 4); the first of 2 to 32 stages had 18, 9, 5, 3 and 2 (32 layers, a head of 2.2).

    >>> by_quota(16, 8, head=4.0)
    (3, 2, 3, 2, 3, 2, 1, 0)
    """
    pieces = _pieces(stages, chunks)
    whole, counts = embedding + layers + head, [0] * pieces
    placed = 0
    for piece in range(pieces - 1):
        quota = math.ceil(whole * (piece + 1) / pieces - embedding - 1e-9)
        end = min(max(quota, placed), layers - (pieces - 2 - piece))
        counts[piece], placed = end - placed, end
    counts[-1] = layers - placed
    if min(counts) < 0:
        raise InputError(WHERE, *_too_many(layers, pieces))
    return _split(counts, layers)


def _pieces(stages: int, chunks: int) -> int:
    if stages < 1 or chunks < 1:
        fault = f"pp = {stages}, interleave = {chunks}"
        raise InputError("plan", fault, "both must be at least 1")
    return stages * chunks


def _split(counts: Sequence[int], layers: int) -> Split:
    if layers < 1 or 0 in counts[1:-1]:
        raise InputError(WHERE, *_too_many(layers, len(counts)))
    return tuple(counts)


def _too_many(layers: int, pieces: int) -> tuple[str, str]:
    return f"{pieces} stages or chunks but only {layers} layers", "use fewer (pp, interleave)"


def _uneven(layers: int, stages: int, chunks: int) -> tuple[str, str]:
    """Return the fault of a split with a remainder, and a remedy that names splits that work."""
    pieces = stages * chunks
    ways = [way for way, short in (("even", 0), ("ends", 2)) if (layers + short) % pieces == 0]
    if pieces > layers and not ways:
        return _too_many(layers, pieces)
    named = " or ".join(f'"{way}"' for way in [*ways, "cost"])
    fault = f"{layers} layers do not divide by {_product(stages, chunks)}"
    return fault, f"set balance = {named}, or list the layers of each"


def _product(stages: int, chunks: int) -> str:
    return f"{stages} stages" + (f" of {chunks} chunks" if chunks > 1 else "")
