"""Collectives and messages by the names that torch's operators have for them."""

from sim.jobs.recorded.recording import EventKind

_KINDS = {
    "allreduce": "all_reduce",
    "all_reduce": "all_reduce",
    "allgather": "all_gather",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "broadcast": "broadcast",
    "alltoall": "all_to_all",
    "all_to_all": "all_to_all",
    "send": "send",
    "recv": "recv",
}
NAMESPACES = ("c10d", "_c10d_functional")


def call_of(operator: str) -> str | None:
    """What an operator of these namespaces does; None for a barrier and the like.

    >>> call_of("_allgather_base_"), call_of("barrier")
    ('all_gather', None)
    """
    plain = operator.strip("_")
    return next((kind for start, kind in _KINDS.items() if plain.startswith(start)), None)


def event_of(call: str) -> EventKind:
    """The kind of its event."""
    return call if call in ("send", "recv") else "collective"  # type: ignore[return-value]
