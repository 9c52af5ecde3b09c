"""The fields of an event of a profiler's trace (Trace Event Format, Google, 2016)."""

from collections.abc import Mapping
from typing import Any

Event = Mapping[str, Any]

CALLS = ("cuda_runtime", "cuda_driver")  # categories of the host's calls of the device


def correlation_of(event: Event) -> Any:
    """The number that a launch and the launched kernel have in common; None without it."""
    return (event.get("args") or {}).get("correlation")
